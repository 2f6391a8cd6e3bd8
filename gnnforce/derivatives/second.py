"""Second derivatives: gradients that are differentiated again, many rows at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnforce.derivatives.support import explained


def recorded_gradient(
    outputs: Tensor, inputs: Sequence[Tensor], cotangent: Tensor
) -> Tensor:
    r"""Return a gradient that can be differentiated again.

    .. math:: g_i = \sum_k w_k\, \partial y_k / \partial x_i

    When the cotangent ``w`` was itself computed from ``outputs``, its own derivative is
    part of that of ``g``.

    Args:
        outputs: ``y``, any shape.
        inputs: Tensors ``x`` that require a gradient.
        cotangent: ``w``, shape of ``outputs``.

    Returns:
        All entries of all inputs, one after the other, shape ``(n_variables,)``.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> recorded_gradient((x**3).sum()[None], [x], torch.ones(1)).tolist()
        [3.0, 12.0]
    """
    parts = torch.autograd.grad(
        outputs, list(inputs), cotangent, create_graph=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in parts])


def derivative_rows(
    gradient: Tensor, inputs: Sequence[Tensor], rows: int, *, keep: bool = False
) -> Tensor:
    r"""Differentiate every entry of a gradient: the matrix of second derivatives.

    .. math:: H_{ij} = \partial g_i / \partial x_j

    ``rows`` rows go through the graph at once, as one vectorized backward pass; the graph
    is freed with the last ones.

    Args:
        gradient: ``g``, from :func:`recorded_gradient`, shape ``(n_variables,)``.
        inputs: The same inputs.
        rows: How many rows at once; bounds the memory and does not change the result.
        keep: Keep the graph for another gradient of the same outputs.

    Returns:
        Shape ``(n_variables, n_variables)``, not symmetrized.

    Raises:
        UserError: When an operation of the model cannot be vectorized.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> g = recorded_gradient(x.prod()[None], [x], torch.ones(1))
        >>> derivative_rows(g, [x], rows=2)
        tensor([[0., 1.],
                [1., 0.]])
    """
    size = gradient.shape[0]
    if not gradient.requires_grad:  # linear in the inputs
        return gradient.new_zeros(size, size)
    pieces = []
    for start in range(0, size, rows):
        stop = min(start + rows, size)
        unit = gradient.new_zeros(stop - start, size)
        unit.diagonal(start).fill_(1)
        pieces.append(_pull(gradient, inputs, unit, keep=keep or stop < size))
    return torch.cat(pieces) if pieces else gradient.new_zeros(0, 0)


def _pull(
    gradient: Tensor, inputs: Sequence[Tensor], cotangents: Tensor, *, keep: bool
) -> Tensor:
    def one(cotangent: Tensor) -> Tensor:
        parts = torch.autograd.grad(
            gradient,
            list(inputs),
            cotangent,
            retain_graph=keep,
            materialize_grads=True,
        )
        return torch.cat([part.reshape(-1) for part in parts])

    with explained("batched"):
        result: Tensor = torch.func.vmap(one)(cotangents)
    return result


def product(gradient: Tensor, inputs: Sequence[Tensor], direction: Tensor) -> Tensor:
    r"""Multiply the matrix of second derivatives with one direction.

    .. math:: p_j = \sum_i v_i\, \partial g_i / \partial x_j

    One more backward pass, in memory proportional to the graph; the matrix is not formed.

    Args:
        gradient: ``g``, shape ``(n_variables,)``.
        inputs: The inputs.
        direction: ``v``, shape ``(n_variables,)``.

    Returns:
        Shape ``(n_variables,)``.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> g = recorded_gradient(x.prod()[None], [x], torch.ones(1))
        >>> product(g, [x], torch.tensor([1.0, 0.0]))
        tensor([0., 1.])
    """
    if not gradient.requires_grad:
        return torch.zeros_like(gradient)
    parts = torch.autograd.grad(
        gradient, list(inputs), direction, retain_graph=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in parts])
