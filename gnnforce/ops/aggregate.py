r"""The sum over neighbors of a message-passing layer, as one primitive.

Every layer that is linear in the features of the neighbors has the form

.. math::
    A^{l}_{i m f} = \sum_{e:\, j \to i} \Big[ R^{l}_{e f}\, Y_{l m}(\hat r_e)\, x^{l}_{j f}
                    + Q^{l}_{e f}\, y^{l}_{j m f} \Big], \qquad
    (R, Q)_e = W\, b(r_e)

with scalars ``x`` that are *embedded* in the direction of the edge and tensors ``y`` that
are *carried* along it. SchNet embeds ``l = 0``; PaiNN embeds ``l = 0, 1`` and
carries ``l = 1``. The radial functions are a linear map of values ``b``, which come with
their slopes ``db/dr``, so the Jacobian of an edge is known without differentiating.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

from typing import Any

import torch
from torch import Tensor

from gnnforce.ops.edge_rules import pull_sum
from gnnforce.ops.edges import Edges, Layer, OfEdges, Paths, Radial, layer_of
from gnnforce.ops.harmonics import harmonics
from gnnforce.ops.rules import (
    Cotangents,
    Primitive,
    apply_rule,
    is_batched,
    kept_or_made,
    remember_tensors,
    wanted,
)
from gnnforce.ops.scatter import scatter_sum
from gnnforce.ops.slots import Slots

# up to which size a layer keeps what it computed on edges, instead of computing it again
KEPT_ENTRIES = 2**21


def aggregate(
    paths: Paths, edges: Edges, radial: Radial, *sent: Tensor
) -> tuple[Tensor, ...]:
    """Sum over neighbors; the formula stands at the head of this module.

    Derivatives with respect to ``edges.lengths`` and ``edges.directions`` are given to
    batched cotangents only, those with respect to everything else always; see
    :func:`gnnforce.ops.mode.chained`.

    Args:
        paths: What is embedded and carried.
        edges: Geometry.
        radial: Values, slopes and the linear map of the radial functions.
        *sent: For every degree in ``paths.embed`` scalars ``x`` of shape ``(n_atoms,
            n_features)``; then for every degree in ``paths.carry`` a tensor ``y`` of shape
            ``(n_atoms, 2 l + 1, n_features)``, without the middle axis when ``l`` is zero.

    Returns:
        One tensor for every degree, shaped as a ``y`` of that degree.
    """
    result: tuple[Tensor, ...] = _Aggregate.apply(
        [], paths, edges.slots, edges.lengths, edges.directions, *radial, *sent
    )
    return result


class _Aggregate(Primitive):
    @staticmethod
    def forward(
        kept: list[OfEdges],
        paths: Paths,
        slots: Slots,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        layer = layer_of(paths, slots, tensors)
        small = layer.value.shape[0] * layer.weight.shape[0] <= KEPT_ENTRIES
        edges = layer.of_edges(slopes=small)
        if small:
            kept.append(edges)
        return _forward(layer, edges)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.kept, ctx.paths, ctx.slots = inputs[:3]
        ctx.save_for_backward(*inputs[4:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        layer = layer_of(ctx.paths, ctx.slots, ctx.saved_tensors)
        needed = wanted(ctx)[3:]
        if not is_batched(grads):
            needed = (False, False, *needed[2:])  # see gnnforce.ops.mode.chained

        def rule(cotangents: Cotangents) -> Cotangents:
            edges = kept_or_made(ctx.kept, lambda: layer.of_edges(slopes=True))
            return pull_sum(layer, edges, cotangents, needed)

        return None, None, None, *apply_rule(rule, grads)


def _forward(layer: Layer, edges: OfEdges) -> tuple[Tensor, ...]:
    slots, paths = layer.slots, layer.paths
    total: dict[int, Tensor] = {}
    for degree, scalars, radial in zip(paths.embed, edges.x, edges.values, strict=False):
        messages = slots.blocks(scalars * radial)  # (n_blocks, width, n_features)
        if degree == 0:
            total[degree] = messages.sum(dim=1, keepdim=True)
        else:
            angular = slots.blocks(harmonics(layer.directions, degree))
            total[degree] = torch.bmm(angular.transpose(1, 2), messages)
    for degree, tensors, radial in zip(
        paths.carry, edges.y, edges.values[len(paths.embed) :], strict=True
    ):
        moved = slots.blocks(tensors * radial[:, None]).sum(dim=1)
        total[degree] = total[degree] + moved if degree in total else moved
    results = (_from_blocks(total[degree], slots) for degree in paths.degrees)
    return tuple(
        r[:, 0] if degree == 0 else r
        for r, degree in zip(results, paths.degrees, strict=True)
    )


def _from_blocks(values: Tensor, slots: Slots) -> Tensor:
    if slots.block_target is None:
        return values
    return scatter_sum(values, slots.block_target, slots.n_atoms)
