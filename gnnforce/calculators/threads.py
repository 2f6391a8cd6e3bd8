"""How many threads one evaluation uses, without touching the caller's setting."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gnnforce.errors import UserError

_IMPORTED_IN = os.getpid()


def check_threads(threads: int | None) -> int | None:
    """Return the number of threads, or raise for one that is none.

    Raises:
        UserError: For anything but ``None`` or a whole number above zero.

    Example:
        >>> check_threads(2)
        2
    """
    whole = isinstance(threads, int) and not isinstance(threads, bool)
    if threads is not None and not (whole and threads > 0):
        raise UserError(f"threads must be a whole number above zero, not {threads!r}")
    return threads


@contextmanager
def thread_limit(threads: int | None) -> Iterator[None]:
    """Run torch with this many threads inside the block, and put the number back.

    In a process made by ``fork`` one thread is used whatever is asked: the thread pool
    of the parent does not exist there, and waiting for it would never end.

    Args:
        threads: Threads inside the block; ``None`` leaves the caller's setting.

    Example:
        >>> before = torch.get_num_threads()
        >>> with thread_limit(1):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    wanted = threads if os.getpid() == _IMPORTED_IN else 1
    if wanted is None or wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
