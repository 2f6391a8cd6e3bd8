"""Numbers that keep their precision when a model changes its own."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class ExactBuffers(nn.Module):
    """A module whose buffers follow the device of a model but not its dtype.

    Example:
        >>> import torch
        >>> class Constant(ExactBuffers):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("value", torch.tensor(0.1, dtype=torch.float64))
        >>> Constant().to(torch.float32).value.dtype
        torch.float64
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in exact.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None:
                self._buffers[name] = buffer.to(device=moved.device)
        return self
