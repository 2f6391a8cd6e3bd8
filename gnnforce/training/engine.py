"""The one place that imports Lightning, and that leaves the process as it was.

Importing Lightning and running its trainer change environment variables, warning filters
and log levels of the whole process, which may belong to somebody else.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def untouched_environment() -> Iterator[None]:
    """Put back environment variables and warning filters after the block."""
    before = dict(os.environ)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


with untouched_environment():
    # what its many imports deprecate is no concern of whoever imports this package
    warnings.simplefilter("ignore")
    import lightning.pytorch as pl
    from lightning.fabric.utilities.rank_zero import rank_zero_only

__all__ = [
    "pl",
    "process_rank",
    "quiet_lightning",
    "thread_limit",
    "untouched_environment",
]


def process_rank() -> int:
    """Return the rank of this process, also before a trainer exists; 0 for one alone."""
    return int(getattr(rank_zero_only, "rank", None) or 0)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Keep Lightning's greetings and advice off the console inside the block.

    They tell of hardware, of products and of how to use Lightning, which is not what a
    user of this package asked; errors still come through.
    """
    loggers = [logging.getLogger(f"lightning.{name}") for name in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            # an axis of length one has no stride that could matter
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def thread_limit(threads: int | None) -> Iterator[None]:
    """Run torch with this many threads inside the block; None leaves the setting."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)
