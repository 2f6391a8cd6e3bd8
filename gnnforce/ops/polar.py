"""Lengths and directions of edges, and the way back to edge vectors."""

# ruff: noqa: ANN401  (autograd.Function prescribes names and passes anything)

from typing import Any

import torch
from torch import Tensor

from gnnforce.ops.edges import Edges
from gnnforce.ops.rules import Cotangents, Primitive, apply_rule
from gnnforce.ops.slots import Slots

FAR = 2.0  # cutoffs: the length given to an empty slot


def polar(vectors: Tensor, slots: Slots, cutoff: float) -> Edges:
    r"""Split edge vectors into lengths and directions, one a slot.

    .. math:: r = |\mathbf r|, \qquad \hat{\mathbf r} = \mathbf r / r, \qquad
              \frac{\partial E}{\partial \mathbf r} = \frac{\partial E}{\partial r}
              \hat{\mathbf r} + \frac1r\,(1 - \hat{\mathbf r} \hat{\mathbf r}^T)
              \frac{\partial E}{\partial \hat{\mathbf r}}

    Args:
        vectors: In Angstrom, edges in the order of the graph, ``(n_edges, 3)``.
        slots: The layout of the graph.
        cutoff: In Angstrom; an empty slot is further away than that.

    Returns:
        The geometry of the slots.

    Example:
        >>> from gnnforce.ops.slots import slots_of
        >>> slots = slots_of(torch.tensor([[1, 0], [0, 1]]), 2)
        >>> polar(torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, -2.0]]), slots, 5.0).lengths
        tensor([2., 2.])
    """
    lengths, directions = _Polar.apply(vectors, slots, cutoff)
    return Edges(slots, lengths, directions)


class _Polar(Primitive):
    @staticmethod
    def forward(vectors: Tensor, slots: Slots, cutoff: float) -> tuple[Tensor, Tensor]:
        far = vectors.new_zeros(1, 3)
        far[:, 2] = FAR * cutoff
        rows = torch.cat([vectors, far]).index_select(0, slots.edge)
        lengths = torch.linalg.vector_norm(rows, dim=1)
        return lengths, rows / lengths[:, None]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.slots = inputs[1]
        ctx.save_for_backward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        lengths, directions = (saved.detach() for saved in ctx.saved_tensors)
        slots: Slots = ctx.slots

        def rule(cotangents: Cotangents) -> Cotangents:
            of_length, of_direction = cotangents
            u = directions.T[:, :, None]  # (3, n_slots, 1)
            total = None
            if of_length is not None:
                along = of_length.T  # (n_slots, n_outputs)
            if of_direction is not None:
                across = of_direction.permute(2, 1, 0) / lengths[:, None]
                radial = (u * across).sum(dim=0)
                along = along - radial if of_length is not None else -radial
                total = across + u * along
            else:
                total = u * along
            # rows of edges, as the sums to forces want them
            rows = total.transpose(0, 1).index_select(0, slots.slot)  # (n_edges, 3, N)
            return (rows.permute(2, 0, 1),)

        if all(g is None for g in grads):
            return None, None, None
        (result,) = apply_rule(rule, grads)
        return result, None, None
