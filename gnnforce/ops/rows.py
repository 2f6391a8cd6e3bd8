"""Arithmetic on cotangents kept with features first and outputs last.

A rule of a primitive that acts on each atom by itself sees ``(n_features, n_atoms, [3,]
n_outputs)``. A linear layer is then one matrix product whatever the number of outputs, and
sums over neighbors (:mod:`gnnforce.ops.aggregate`) need no copy. What does not depend on the
output has a last axis of one.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CACHE_BYTES = 2**20  # what one tensor of a piece takes, so that a few fit a core's cache


def features_first(g: Tensor) -> Tensor:
    """Bring cotangents to ``(n_features, n_atoms, [3,] n_outputs)``.

    Args:
        g: Shape ``(n_outputs, n_atoms, [3,] n_features)``.

    Returns:
        Contiguous; nothing is copied between primitives.
    """
    order = (2, 1, 0) if g.dim() == 3 else (3, 1, 2, 0)
    return g.permute(order).contiguous()


def outputs_first(g: Tensor) -> Tensor:
    """View the result of a rule with the outputs leading, as autograd has it."""
    return g.permute((2, 1, 0) if g.dim() == 3 else (3, 1, 2, 0))


def constant(x: Tensor) -> Tensor:
    """Bring what does not depend on the output to ``(n_features, n_atoms, [3,] 1)``."""
    order = (1, 0) if x.dim() == 2 else (2, 0, 1)
    return x.permute(order).contiguous()[..., None]


def times(g: Tensor, factor: Tensor) -> Tensor:
    """Multiply a temporary, in place where no derivative is recorded."""
    return g * factor if torch.is_grad_enabled() else g.mul_(factor)


def plus_product(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return ``g + a * b`` of a temporary ``g``, in place where nothing is recorded."""
    if torch.is_grad_enabled():
        return torch.addcmul(g, a, b)
    return g.addcmul_(a, b)


def contract(g: Tensor, factor: Tensor) -> Tensor:
    """Sum ``g * factor`` over components: ``(f, n, 3, N)`` and ``(f, n, 3, 1)``."""
    if torch.is_grad_enabled():  # the derivative of a slice is a tensor full of zeros
        return (g * factor).sum(dim=2)
    total = g[:, :, 0] * factor[:, :, 0]
    for c in range(1, g.shape[2]):
        total.addcmul_(g[:, :, c], factor[:, :, c])
    return total


def outer(g: Tensor, factor: Tensor) -> Tensor:
    """Give scalars the components of a factor: ``(f, n, N)`` and ``(f, n, 3, 1)``.

    Component by component where nothing is recorded: PyTorch walks over tensors that are
    stretched along different axes in steps of three.
    """
    if torch.is_grad_enabled():
        return g[:, :, None] * factor
    out = g.new_empty(*g.shape[:2], factor.shape[2], g.shape[2])
    for c in range(factor.shape[2]):
        torch.mul(g, factor[:, :, c], out=out[:, :, c])
    return out


def plus_outer(total: Tensor, g: Tensor, factor: Tensor) -> Tensor:
    """Return ``total + outer(g, factor)`` of a temporary ``total``."""
    if torch.is_grad_enabled():
        return torch.addcmul(total, g[:, :, None], factor)
    for c in range(factor.shape[2]):
        total[:, :, c].addcmul_(g, factor[:, :, c])
    return total


def pull_matrix(
    weight: Tensor,
    parts: Sequence[Tensor],
    start: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""Multiply with the transpose of a weight, its rows in parts.

    .. math:: \mathrm{start} + \sum_p W_p^T g_p

    Args:
        weight: ``W``, shape ``(n_out, n_in)``.
        parts: ``g``, shapes ``(n_p, ...)``, the ``n_p`` adding up to ``n_out``.
        start: What is added to, shape ``(n_in, ...)``; not changed.
        out: Where to write the result when no derivative is recorded, such as a slice of
            the atoms of a larger tensor; a new tensor when None.

    Returns:
        Shape ``(n_in, ...)``.

    Example:
        >>> pull_matrix(torch.ones(3, 2), [torch.ones(1, 4), torch.ones(2, 4)])[0]
        tensor([3., 3., 3., 3.])
    """
    if torch.is_grad_enabled():
        g = _flat(torch.cat(list(parts)) if len(parts) > 1 else parts[0])
        product = (
            weight.T @ g if start is None else torch.addmm(_flat(start), weight.T, g)
        )
        return product.view(weight.shape[1], *parts[0].shape[1:])
    total = None if start is None else _flat(start)
    target = None if out is None else _flat(out)
    in_place = False  # the start is not ours to overwrite
    row = 0
    for part in parts:
        block = weight[row : row + part.shape[0]].T
        row += part.shape[0]
        if total is None:
            total = torch.mm(block, _flat(part), out=target)
        elif in_place:
            total.addmm_(block, _flat(part))
        else:
            total = torch.addmm(total, block, _flat(part), out=target)
        in_place = True
    assert total is not None
    return total.view(weight.shape[1], *parts[0].shape[1:]) if out is None else out


def _flat(x: Tensor) -> Tensor:
    """View ``(f, ...)`` as a matrix; a slice of atoms keeps the stride of its rows."""
    return x.reshape(x.shape[0], -1) if x.is_contiguous() else x.flatten(1)


def pieces(n_atoms: int, bytes_per_atom: int, *, whole: bool) -> Iterator[slice]:
    """Cut atoms into pieces whose tensors stay in the cache.

    Args:
        n_atoms: Number of atoms.
        bytes_per_atom: Of the largest tensor.
        whole: Do not cut; nor is anything cut while derivatives are recorded.

    Yields:
        Slices of atoms; one when nothing is cut.

    Example:
        >>> with torch.no_grad():
        ...     list(pieces(5, CACHE_BYTES // 3, whole=False))
        [slice(0, 3, None), slice(3, 5, None)]
    """
    size = max(n_atoms, 1)
    if not (whole or torch.is_grad_enabled()):
        size = max(1, CACHE_BYTES // max(1, bytes_per_atom))
    for start in range(0, max(n_atoms, 1), size):
        yield slice(start, min(start + size, n_atoms))
