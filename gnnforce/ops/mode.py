"""How the pass that is being run will be differentiated.

A forward pass of the same model takes one of three forms, which give the same numbers:

- inside :func:`~gnnforce.ops.scatter.one_cotangent`: PyTorch's own operations, for
  derivatives of any order, one cotangent at a time;
- without a context: operations with a rule for batched cotangents, for anything
  ``torch.func`` does;
- inside :func:`chained`: the primitives of this room, whose backward pass contracts
  the cotangents of all outputs with one Jacobian of the edges.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_local = threading.local()


@contextmanager
def chained(*, frozen: bool = False) -> Iterator[None]:
    """Run backbones on the primitives, in the calling thread.

    What is computed inside passes derivatives to edge vectors to batched cotangents only
    (one level of ``torch.func.vmap``); a plain backward pass, as that of a loss, reaches
    the parameters and stops at the edge vectors. There is no second derivative with
    respect to edge vectors.

    Args:
        frozen: Derivatives with respect to parameters are not wanted either, which spares
            the primitives asking.

    Example:
        >>> with chained():
        ...     is_chained()
        True
        >>> is_chained()
        False
    """
    before = is_chained(), is_frozen()
    _local.chained, _local.frozen = True, frozen
    try:
        yield
    finally:
        _local.chained, _local.frozen = before


def is_chained() -> bool:
    """Tell whether the calling thread is inside :func:`chained`."""
    return bool(getattr(_local, "chained", False))


def is_frozen() -> bool:
    """Tell whether the calling thread is inside ``chained(frozen=True)``."""
    return bool(getattr(_local, "frozen", False))
