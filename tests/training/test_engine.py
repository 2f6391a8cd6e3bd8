import logging
import os
import subprocess
import sys
import warnings

import pytest
import torch

from gnnforce.training.engine import (
    process_rank,
    quiet_lightning,
    thread_limit,
    untouched_environment,
)


def test_environment_and_filters_come_back():
    before = dict(os.environ), list(warnings.filters)
    with untouched_environment():
        os.environ["GNNFORCE_TEST_X"] = "1"
        os.environ["PATH"] = ""
        warnings.simplefilter("ignore")
    assert (dict(os.environ), list(warnings.filters)) == before


@pytest.mark.slow
def test_import_changes_nothing_of_the_process():
    """Case C23, for the import of Lightning."""
    code = (
        "import os, warnings, torch, logging, torch_geometric, ase.io\n"
        "e, f = dict(os.environ), list(warnings.filters)\n"
        "import gnnforce.training.engine\n"
        "print([k for k in os.environ if os.environ[k] != e.get(k)])\n"
        "print([x for x in warnings.filters if x not in f])\n"
        "print(logging.getLogger().handlers)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["[]", "[]", "[]", ""]
    assert done.stderr == ""


def test_greetings_are_off_and_levels_come_back():
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    with quiet_lightning():
        assert not logger.isEnabledFor(logging.WARNING)
        assert logger.isEnabledFor(logging.ERROR)
    assert logger.level == before


def test_threads_come_back():
    before = torch.get_num_threads()
    with thread_limit(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with thread_limit(None):
        assert torch.get_num_threads() == before


def test_a_process_alone_is_the_first():
    assert process_rank() == 0
