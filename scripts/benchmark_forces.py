"""Compare derivative strategies: the command ``gnnforce benchmark forces``, from a clone.

    python scripts/benchmark_forces.py --workload molecule --members 1,4,16 --plot forces.png

All options are those of the command; ``--help`` lists them.
"""

import sys

from gnnforce.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["benchmark", "forces", *sys.argv[1:]]))
