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

Cotangents of all outputs, ``C``, are kept with features first and outputs last. Back to the
geometry, every atom contracts its cotangents with its own edges, a batched matrix product;
back to the neighbors, every feature is a sparse product (:mod:`gnnforce.ops.bags`). No
tensor of outputs x edges x features is formed.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnforce.ops.bags import send, send_contracted
from gnnforce.ops.harmonics import harmonics, pull_harmonics
from gnnforce.ops.rows import plus_product
from gnnforce.ops.rules import (
    Cotangents,
    Primitive,
    apply_rule,
    is_batched,
    keep,
    kept_or_made,
    remember_tensors,
    wanted,
)
from gnnforce.ops.scatter import scatter_sum
from gnnforce.ops.slots import Slots

# up to which size a layer keeps what it computed on edges, instead of computing it again
KEPT_ENTRIES = 2**21


@dataclass(frozen=True)
class Paths:
    """Which degrees a layer embeds and carries.

    Attributes:
        embed: Degrees of the scalars, in the order of their columns in ``x`` and ``W``.
        carry: Degrees of the tensors, in the order in which they are passed; their
            columns of ``W`` follow those of ``embed``.
    """

    embed: tuple[int, ...] = ()
    carry: tuple[int, ...] = ()

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees of the results, ascending."""
        return tuple(sorted({*self.embed, *self.carry}))


class Edges(NamedTuple):
    """Geometry of the edges of a graph, in slots.

    Attributes:
        slots: The layout.
        lengths: In Angstrom, shape ``(n_slots,)``.
        directions: Unit vectors from target to source, shape ``(n_slots, 3)``.
    """

    slots: Slots
    lengths: Tensor
    directions: Tensor


class Radial(NamedTuple):
    """Radial functions of every slot before the last linear map.

    Attributes:
        value: ``b``, shape ``(n_slots, n_basis)``; zero beyond the cutoff.
        slope: ``db/dr``, same shape.
        sent: ``b`` of the edges in the order of their source, ``(n_edges, n_basis)``.
        weight: ``W``, one block of ``n_features`` rows for every path,
            ``(n_paths * n_features, n_basis)``.
    """

    value: Tensor
    slope: Tensor
    sent: Tensor
    weight: Tensor


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


class _OfEdges(NamedTuple):
    """What a layer knows of every slot, all of it without outputs.

    Attributes:
        values: Radial functions of every path, each ``(n_slots, n_features)``.
        slopes: Their derivatives.
        x: Scalars of the source for every embedded degree, ``(n_slots, n_features)``.
        y: Tensors of the source for every carried degree, ``(n_slots, m, n_features)``.
    """

    values: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    x: tuple[Tensor, ...]
    y: tuple[Tensor, ...]


class _Layer(NamedTuple):
    """Inputs of the primitive that are tensors; carried ones have a component axis."""

    paths: Paths
    slots: Slots
    directions: Tensor
    value: Tensor
    slope: Tensor
    sent: Tensor
    weight: Tensor
    x: tuple[Tensor, ...]
    carried: tuple[Tensor, ...]

    @property
    def n_paths(self) -> int:
        return len(self.paths.embed) + len(self.paths.carry)

    @property
    def n_features(self) -> int:
        return self.weight.shape[0] // self.n_paths

    def of_edges(self, *, slopes: bool) -> _OfEdges:
        """Evaluate radial functions and fetch what the sources hold."""
        source, n_paths = self.slots.source, self.n_paths
        return _OfEdges(
            (self.value @ self.weight.T).chunk(n_paths, dim=1),
            (self.slope @ self.weight.T).chunk(n_paths, dim=1) if slopes else (),
            tuple(x.index_select(0, source) for x in self.x),
            tuple(y.index_select(0, source) for y in self.carried),
        )

    def to_blocks(self, values: Tensor, axis: int) -> Tensor:
        """Copy rows of targets to their blocks; nothing to do for one block an atom."""
        target = self.slots.block_target
        return values if target is None else values.index_select(axis, target)


class _Aggregate(Primitive):
    @staticmethod
    def forward(
        kept: list[_OfEdges],
        paths: Paths,
        slots: Slots,
        lengths: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        layer = _layer(paths, slots, tensors)
        small = layer.value.shape[0] * layer.weight.shape[0] <= KEPT_ENTRIES
        edges = layer.of_edges(slopes=small)
        if small:
            keep(kept, edges)
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
        layer = _layer(ctx.paths, ctx.slots, ctx.saved_tensors)
        needed = wanted(ctx)[3:]
        if not is_batched(grads):
            needed = (False, False, *needed[2:])  # see gnnforce.ops.mode.chained

        def rule(cotangents: Cotangents) -> Cotangents:
            edges = kept_or_made(ctx.kept, lambda: layer.of_edges(slopes=True))
            return _pull(layer, edges, cotangents, needed)

        return None, None, None, *apply_rule(rule, grads)


def _layer(paths: Paths, slots: Slots, tensors: tuple[Tensor, ...]) -> _Layer:
    directions, value, slope, sent, weight, *rows = tensors
    n_embedded = len(paths.embed)
    x = tuple(rows[:n_embedded])
    y = tuple(y[:, None] if y.dim() == 2 else y for y in rows[n_embedded:])
    return _Layer(paths, slots, directions.detach(), value, slope, sent, weight, x, y)


def _forward(layer: _Layer, edges: _OfEdges) -> tuple[Tensor, ...]:
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


# Backward ------------------------------------------------------------------------------


def _pull(
    layer: _Layer, edges: _OfEdges, cotangents: Cotangents, needed: tuple[bool, ...]
) -> Cotangents:
    """Pull cotangents of all outputs back to every input that is asked for."""
    first = {
        degree: _features_first(g)
        for degree, g in zip(layer.paths.degrees, cotangents, strict=True)
        if g is not None
    }
    lengths = directions = None
    if needed[0] or needed[1]:
        lengths, directions = _to_geometry(layer, edges, first)
    value, weight = _to_radial(layer, edges, cotangents, (needed[2], needed[5]))
    rows: Cotangents = (None,) * layer.n_paths
    if any(needed[6:]):
        rows = _to_sources(layer, first)
    # slopes and what is sent enter the rules only
    return lengths, directions, value, None, None, weight, *rows


def _features_first(g: Tensor) -> Tensor:
    """Return ``(n_features, n_atoms, m, n_outputs)``; no copy between primitives."""
    g = g[:, :, None] if g.dim() == 3 else g
    return g.permute(3, 1, 2, 0).contiguous()


def _to_geometry(
    layer: _Layer, edges: _OfEdges, cotangents: dict[int, Tensor]
) -> tuple[Tensor, Tensor | None]:
    r"""Contract cotangents with the Jacobian of every edge.

    Returns:
        Of lengths ``(n_outputs, n_slots)`` and directions ``(n_outputs, n_slots, 3)``.
    """
    slots, paths = layer.slots, layer.paths
    along: Tensor | None = None
    across: Tensor | None = None
    for degree, cotangent in cotangents.items():
        c = layer.to_blocks(cotangent, 1).transpose(0, 1)  # (n_blocks, features, m, N)
        jacobian = slots.blocks(_slopes_along(layer, edges, degree))
        for m in range(2 * degree + 1):
            along = _add_product(along, jacobian[:, :, m], c[:, :, m])
        if degree > 0 and degree in paths.embed:
            number = paths.embed.index(degree)
            messages = slots.blocks(edges.x[number] * edges.values[number])
            turned = torch.bmm(messages, c.flatten(2))  # (n_blocks, width, m N)
            turned = turned.view(-1, 2 * degree + 1, cotangent.shape[3]).transpose(0, 1)
            part = pull_harmonics(layer.directions, turned, degree)
            across = part if across is None else across + part
    assert along is not None
    of_directions = None if across is None else across.permute(2, 1, 0)
    return along.flatten(0, 1).T, of_directions


def _slopes_along(layer: _Layer, edges: _OfEdges, degree: int) -> Tensor:
    """Return the derivative of messages with the edge's length.

    Returns:
        Shape ``(n_slots, 2 l + 1, n_features)``.
    """
    paths = layer.paths
    total: Tensor | None = None
    if degree in paths.embed:
        number = paths.embed.index(degree)
        total = (edges.x[number] * edges.slopes[number])[:, None]
        if degree > 0:
            total = total * harmonics(layer.directions, degree)[:, :, None]
    if degree in paths.carry:
        number = paths.carry.index(degree)
        radial = edges.slopes[len(paths.embed) + number][:, None]
        carried = edges.y[number]
        if total is None:
            return radial * carried
        total = plus_product(total, radial, carried)
    assert total is not None
    return total


def _add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    if total is None:
        return torch.bmm(a, b)
    if torch.is_grad_enabled():
        return torch.baddbmm(total, a, b)
    return total.baddbmm_(a, b)


def _to_sources(layer: _Layer, cotangents: dict[int, Tensor]) -> Cotangents:
    """Send cotangents to the sources of the edges.

    Returns:
        Of every ``x``, then of every ``y``, with the outputs leading.
    """
    slots, paths = layer.slots, layer.paths
    functions = (layer.weight @ layer.sent.T).chunk(layer.n_paths)  # (f, n_edges)
    rows: list[Tensor | None] = []
    for degree, radial in zip(paths.embed, functions, strict=False):
        c = cotangents.get(degree)
        if c is None:
            rows.append(None)
        elif degree == 0:
            rows.append(send(radial, c, slots)[:, :, 0].permute(2, 1, 0))
        else:
            angular = harmonics(layer.directions, degree)
            angular = angular.index_select(0, slots.slot_by_source)
            moved = send_contracted(radial, angular, c, slots)
            rows.append(moved.permute(2, 1, 0))
    for degree, radial in zip(paths.carry, functions[len(paths.embed) :], strict=True):
        c = cotangents.get(degree)
        if c is None:
            rows.append(None)
            continue
        moved = send(radial, c, slots).permute(3, 1, 2, 0)
        rows.append(moved[:, :, 0] if degree == 0 else moved)
    return tuple(rows)


def _to_radial(
    layer: _Layer, edges: _OfEdges, cotangents: Cotangents, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Pull cotangents back to the radial functions, edge by edge.

    This is for parameters. It does form a tensor of outputs x edges x features, of one
    output in the backward pass of a loss.
    """
    if not any(needed):
        return None, None
    slots, paths = layer.slots, layer.paths
    rows = {}
    for degree, g in zip(paths.degrees, cotangents, strict=True):
        if g is not None:
            with_component = g[:, :, None] if g.dim() == 3 else g
            rows[degree] = layer.to_blocks(
                with_component, 1
            )  # (N, n_blocks, m, features)
    n_outputs = next(iter(rows.values())).shape[0]
    shape = (n_outputs, slots.edge.shape[0], layer.n_features)
    zero = layer.value.new_zeros(1, 1, 1).expand(shape)
    parts = []
    for degree, scalars in zip(paths.embed, edges.x, strict=True):
        if degree not in rows:
            parts.append(zero)
            continue
        angular = slots.blocks(harmonics(layer.directions, degree))
        parts.append((angular @ rows[degree]).view(shape) * scalars)
    for degree, tensors in zip(paths.carry, edges.y, strict=True):
        if degree not in rows:
            parts.append(zero)
            continue
        products = slots.blocks(tensors) * rows[degree][:, :, None]
        parts.append(products.sum(dim=3).view(shape))
    functions = torch.cat(parts, dim=2)  # (n_outputs, n_slots, n_paths * n_features)
    value = functions @ layer.weight if needed[0] else None
    weight = functions.transpose(1, 2) @ layer.value if needed[1] else None
    return value, weight
