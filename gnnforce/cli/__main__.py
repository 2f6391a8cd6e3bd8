"""``python -m gnnforce.cli`` is the command ``gnnforce``."""

import sys

from gnnforce.cli.main import main

sys.exit(main())
