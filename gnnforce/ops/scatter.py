"""Sums over the edges of an atom, and the copy that is their transpose.

``scatter_sum`` and ``gather`` are each other's derivative. Both are
``torch.autograd.Function`` s with a rule for batched cotangents, so that a
vectorized vector-Jacobian product runs as one wide operation: PyTorch's own rule for
a batched ``index_add`` gives up the fast path for rows. Where it is known that no batch of
cotangents comes, :func:`one_cotangent` uses PyTorch's own operations, whose derivatives do
not go through Python.

torch-scatter is used when it can be imported, and only as a faster kernel: the
result is the same. ``GNNFORCE_SCATTER`` = ``auto`` (default), ``native`` or
``torch_scatter`` chooses; the last one is an error when the package is missing.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gnnforce.errors import ConfigError

Kernel = Callable[[Tensor, Tensor, int], Tensor]

_local = threading.local()


@contextmanager
def one_cotangent() -> Iterator[None]:
    """Promise that results are not differentiated with batched cotangents.

    Only speed depends on it: batched derivatives of what is computed inside are right
    but slow. The promise holds for the calling thread.

    Example:
        >>> with one_cotangent():
        ...     total = scatter_sum(torch.ones(2, 1), torch.tensor([0, 0]), 1)
        >>> total
        tensor([[2.]])
    """
    before = getattr(_local, "one_cotangent", False)
    _local.one_cotangent = True
    try:
        yield
    finally:
        _local.one_cotangent = before


def _native_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    rows = index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return values.new_zeros(size, *values.shape[1:]).scatter_add_(0, rows, values)


@cache
def _kernel(choice: str) -> Kernel:
    if choice not in ("auto", "native", "torch_scatter"):
        raise ConfigError(
            f"GNNFORCE_SCATTER={choice!r}: choose auto, native or torch_scatter"
        )
    if choice == "native":
        return _native_sum
    try:
        module = importlib.import_module("torch_scatter")
    except (ImportError, OSError) as error:
        if choice == "torch_scatter":
            raise ConfigError(
                f"GNNFORCE_SCATTER=torch_scatter, but it cannot be imported ({error}); "
                "install the extra 'scatter' or unset the variable"
            ) from error
        return _native_sum

    def compiled_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
        result: Tensor = module.scatter(values, index, dim=0, dim_size=size, reduce="sum")
        return result

    return compiled_sum


def _sum_rows(values: Tensor, index: Tensor, size: int) -> Tensor:
    return _kernel(os.environ.get("GNNFORCE_SCATTER", "auto"))(values, index, size)


def _batched_index(index: Tensor, batch: int, stride: int) -> Tensor:
    """Row numbers of ``batch`` copies laid one after the other."""
    offset = torch.arange(batch, device=index.device, dtype=index.dtype) * stride
    return (offset[:, None] + index).reshape(-1)


class _Linear(torch.autograd.Function):
    """A linear map whose calls are cheap outside of ``torch.func`` transforms.

    ``Function.apply`` inspects the Python signature at every call, which costs more
    than the sum itself for a small molecule; without a transform the C++ entry beneath
    it does the same.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if _transforms_active():
            return super().apply(*args)  # type: ignore[no-untyped-call]
        return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


def _transforms_active() -> bool:
    active: bool = torch._C._are_functorch_transforms_active()  # noqa: SLF001
    return active


def _plain() -> bool:
    """Nothing records derivatives or batches: a kernel may be called directly."""
    return not (torch.is_grad_enabled() or _transforms_active())


class _ScatterSum(_Linear):
    @staticmethod
    def forward(values: Tensor, index: Tensor, size: int) -> Tensor:
        return _sum_rows(values, index, size)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor
    ) -> None:
        _, index, size = inputs
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        ctx.size = size

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        if _plain():
            return grad.index_select(0, index), None, None
        return _Gather.apply(grad, index), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (index,) = ctx.saved_tensors
        return _ScatterSum.apply(tangent, index, ctx.size)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        values: Tensor,
        index: Tensor,
        size: int,
    ) -> tuple[Tensor, int]:
        batch, values = _front(info, in_dims, values)
        rows = _batched_index(index, batch, size)
        total = _ScatterSum.apply(values.flatten(0, 1), rows, batch * size)
        return total.unflatten(0, (batch, size)), 0


class _Gather(_Linear):
    @staticmethod
    def forward(values: Tensor, index: Tensor) -> Tensor:
        return values.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        values, index = inputs
        ctx.save_for_backward(index)
        ctx.save_for_forward(index)
        ctx.size = values.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        if _plain():
            return _sum_rows(grad, index, ctx.size), None
        return _ScatterSum.apply(grad, index, ctx.size), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (index,) = ctx.saved_tensors
        return _Gather.apply(tangent, index)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], values: Tensor, index: Tensor
    ) -> tuple[Tensor, int]:
        batch, values = _front(info, in_dims, values)
        rows = _batched_index(index, batch, values.shape[1])
        picked = _Gather.apply(values.flatten(0, 1), rows)
        return picked.unflatten(0, (batch, index.shape[0])), 0


def _front(
    info: Any, in_dims: tuple[int | None, ...], values: Tensor
) -> tuple[int, Tensor]:
    if in_dims[1] is not None:
        raise NotImplementedError("a batched index is not supported")
    return int(info.batch_size), values.movedim(in_dims[0] or 0, 0)


def scatter_sum(values: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Sum rows that share an index.

    .. math:: \mathrm{out}_i = \sum_{e:\,\mathrm{index}_e = i} \mathrm{values}_e

    Args:
        values: Shape ``(n_rows, ...)``.
        index: Target of every row, int64, shape ``(n_rows,)``, in ``[0, size)``.
        size: Number of rows of the result; never guessed from ``index``, so that
            atoms without edges and empty graphs keep their (zero) row.

    Returns:
        Sums, shape ``(size, ...)``.

    Example:
        >>> scatter_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 0, 2]), 4)
        tensor([[3.],
                [0.],
                [4.],
                [0.]])
    """
    if getattr(_local, "one_cotangent", False):
        return _sum_rows(values, index, size)
    result: Tensor = _ScatterSum.apply(values, index, size)
    return result


def gather(values: Tensor, index: Tensor) -> Tensor:
    r"""Copy the rows named by an index; the transpose of :func:`scatter_sum`.

    .. math:: \mathrm{out}_e = \mathrm{values}_{\mathrm{index}_e}

    Args:
        values: Shape ``(n_rows, ...)``.
        index: Row of every entry, int64, shape ``(n_entries,)``.

    Returns:
        Copies, shape ``(n_entries, ...)``.

    Example:
        >>> gather(torch.tensor([10.0, 20.0]), torch.tensor([1, 1, 0]))
        tensor([20., 20., 10.])
    """
    if getattr(_local, "one_cotangent", False):
        return values.index_select(0, index)
    result: Tensor = _Gather.apply(values, index)
    return result
