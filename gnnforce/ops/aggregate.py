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
from gnnforce.ops.rules import Cotangents, Primitive, apply_rule, is_batched, remember_tensors, wanted
from gnnforce.ops.scatter import scatter_sum
from gnnforce.ops.slots import Slots


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
        weight: ``W``, one block of ``n_features`` rows for every path,
            ``(n_paths * n_features, n_basis)``.
    """

    value: Tensor
    slope: Tensor
    weight: Tensor


def aggregate(
    paths: Paths, edges: Edges, radial: Radial, x: Tensor | None, *carried: Tensor
) -> tuple[Tensor, ...]:
    """Sum over neighbors; the formula stands at the head of this module.

    Derivatives with respect to ``edges.lengths`` and ``edges.directions`` are given to
    batched cotangents only, those with respect to everything else always; see
    :func:`gnnforce.ops.mode.chained`.

    Args:
        paths: What is embedded and carried.
        edges: Geometry.
        radial: Values, slopes and the linear map of the radial functions.
        x: Scalars of every atom, ``(n_atoms, len(paths.embed) * n_features)``.
        *carried: For every degree in ``paths.carry`` a tensor ``(n_atoms, 2 l + 1,
            n_features)``; ``(n_atoms, n_features)`` when ``l`` is zero.

    Returns:
        One tensor for every degree, of those shapes.
    """
    result: tuple[Tensor, ...] = _Aggregate.apply(
        paths, edges.slots, edges.lengths, edges.directions, *radial, x, *carried
    )
    return result


class _Layer(NamedTuple):
    """Inputs of the primitive that are tensors, tensors with a component axis."""

    paths: Paths
    slots: Slots
    directions: Tensor
    value: Tensor
    slope: Tensor
    weight: Tensor
    x: Tensor | None
    carried: tuple[Tensor, ...]

    @property
    def n_features(self) -> int:
        n_paths = len(self.paths.embed) + len(self.paths.carry)
        return self.weight.shape[0] // n_paths

    def columns(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split radial functions into those of the embedded and carried degrees."""
        return values.split(self.n_features, dim=1)

    def sources(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return scalars and tensors of the source of every slot."""
        slots = self.slots
        x = () if self.x is None else self.columns(self.x.index_select(0, slots.source))
        return x, tuple(y.index_select(0, slots.source) for y in self.carried)

    def to_blocks(self, values: Tensor, axis: int) -> Tensor:
        """Copy rows of targets to their blocks; nothing to do for one block an atom."""
        target = self.slots.block_target
        return values if target is None else values.index_select(axis, target)


class _Aggregate(Primitive):
    @staticmethod
    def forward(
        paths: Paths, slots: Slots, lengths: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        return _forward(_layer(paths, slots, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.paths, ctx.slots = inputs[:2]
        ctx.save_for_backward(*inputs[3:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        layer = _layer(ctx.paths, ctx.slots, ctx.saved_tensors)
        needed = wanted(ctx)[2:]
        if not is_batched(grads):
            needed = (False, False, *needed[2:])  # see gnnforce.ops.mode.chained

        def rule(cotangents: Cotangents) -> Cotangents:
            return _pull(layer, cotangents, needed)

        return None, None, *apply_rule(rule, grads)


def _layer(paths: Paths, slots: Slots, tensors: tuple[Tensor | None, ...]) -> _Layer:
    directions, value, slope, weight, x, *carried = tensors
    assert directions is not None and value is not None
    assert slope is not None and weight is not None
    with_components = tuple(
        y[:, None] if y.dim() == 2 else y for y in carried if y is not None
    )
    return _Layer(
        paths, slots, directions.detach(), value, slope, weight, x, with_components
    )


def _forward(layer: _Layer) -> tuple[Tensor, ...]:
    slots, paths = layer.slots, layer.paths
    functions = layer.columns(layer.value @ layer.weight.T)
    x, y = layer.sources()
    total: dict[int, Tensor] = {}
    for degree, scalars, radial in zip(paths.embed, x, functions, strict=False):
        messages = slots.blocks(scalars * radial)  # (n_blocks, width, n_features)
        if degree == 0:
            total[degree] = messages.sum(dim=1, keepdim=True)
        else:
            angular = slots.blocks(harmonics(layer.directions, degree))
            total[degree] = torch.bmm(angular.transpose(1, 2), messages)
    for degree, tensors, radial in zip(
        paths.carry, y, functions[len(paths.embed) :], strict=True
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
    layer: _Layer, cotangents: Cotangents, needed: tuple[bool, ...]
) -> Cotangents:
    """Pull cotangents of all outputs back to every input that is asked for."""
    first = {
        degree: _features_first(g)
        for degree, g in zip(layer.paths.degrees, cotangents, strict=True)
        if g is not None
    }
    lengths = directions = None
    if needed[0] or needed[1]:
        lengths, directions = _to_geometry(layer, first)
    of_radial = needed[2], needed[4]
    value, weight = _to_radial(layer, cotangents, of_radial)
    x, carried = _to_sources(layer, first) if any(needed[5:]) else (None, ())
    nothing = (None,) * len(layer.carried)
    return lengths, directions, value, None, weight, x, *(carried or nothing)


def _features_first(g: Tensor) -> Tensor:
    """Return ``(n_features, n_atoms, m, n_outputs)``; no copy between primitives."""
    g = g[:, :, None] if g.dim() == 3 else g
    return g.permute(3, 1, 2, 0).contiguous()


def _to_geometry(
    layer: _Layer, cotangents: dict[int, Tensor]
) -> tuple[Tensor, Tensor | None]:
    r"""Contract cotangents with the Jacobian of every edge.

    Returns:
        Of lengths ``(n_outputs, n_slots)`` and directions ``(n_outputs, n_slots, 3)``.
    """
    slots, paths = layer.slots, layer.paths
    x, y = layer.sources()
    slopes = layer.columns(layer.slope @ layer.weight.T)
    values = layer.columns(layer.value @ layer.weight.T)
    along: Tensor | None = None
    across: Tensor | None = None
    for degree, cotangent in cotangents.items():
        c = layer.to_blocks(cotangent, 1).transpose(0, 1)  # (n_blocks, features, m, N)
        angular = harmonics(layer.directions, degree)
        steep: dict[str, Tensor] = {}
        if degree in paths.embed:
            number = paths.embed.index(degree)
            steep["embed"] = x[number] * slopes[number]
            if degree > 0:
                turned = _contract(slots.blocks(x[number] * values[number]), c)
                part = pull_harmonics(layer.directions, turned, degree)
                across = part if across is None else across + part
        if degree in paths.carry:
            number = paths.carry.index(degree)
            steep["carry"] = slopes[len(paths.embed) + number]
        for m in range(2 * degree + 1):
            terms = []
            if "embed" in steep:
                terms.append(steep["embed"] * angular[:, m, None] if degree else steep["embed"])
            if "carry" in steep:
                terms.append(steep["carry"] * y[paths.carry.index(degree)][:, m])
            along = _add_product(along, slots.blocks(sum(terms)), c[:, :, m])
    assert along is not None
    of_directions = None if across is None else across.permute(2, 1, 0)
    return along.flatten(0, 1).T, of_directions


def _contract(edges: Tensor, c: Tensor) -> Tensor:
    """Contract features of slots and targets, ``(m, n_slots, n_outputs)``."""
    rows = [torch.bmm(edges, c[:, :, m]) for m in range(c.shape[2])]
    return torch.stack(rows).flatten(1, 2)


def _add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    if total is None:
        return torch.bmm(a, b)
    if torch.is_grad_enabled():
        return torch.baddbmm(total, a, b)
    return total.baddbmm_(a, b)


def _to_sources(
    layer: _Layer, cotangents: dict[int, Tensor]
) -> tuple[Tensor | None, tuple[Tensor | None, ...]]:
    """Send cotangents to the sources of the edges.

    Returns:
        Of ``x`` ``(n_outputs, n_atoms, ...)`` and of every carried tensor.
    """
    slots, paths = layer.slots, layer.paths
    value = layer.value.index_select(0, slots.slot_by_source)  # (n_edges, n_basis)
    functions = (layer.weight @ value.T).split(layer.n_features)  # (features, n_edges)
    parts = []
    for degree, radial in zip(paths.embed, functions, strict=False):
        if degree not in cotangents:
            parts.append(_nothing(layer, cotangents))
        elif degree == 0:
            parts.append(send(radial, cotangents[0], slots)[:, :, 0])
        else:
            angular = harmonics(layer.directions, degree)
            angular = angular.index_select(0, slots.slot_by_source)
            parts.append(send_contracted(radial, angular, cotangents[degree], slots))
    x = torch.cat(parts).permute(2, 1, 0) if parts else None
    carried: list[Tensor | None] = []
    for degree, radial in zip(paths.carry, functions[len(paths.embed) :], strict=True):
        if degree not in cotangents:
            carried.append(None)
            continue
        moved = send(radial, cotangents[degree], slots).permute(3, 1, 2, 0)
        carried.append(moved[:, :, 0] if degree == 0 else moved)
    return x, tuple(carried)


def _nothing(layer: _Layer, cotangents: dict[int, Tensor]) -> Tensor:
    n_outputs = next(iter(cotangents.values())).shape[-1]
    return layer.value.new_zeros(layer.n_features, layer.slots.n_atoms, n_outputs)


def _to_radial(
    layer: _Layer, cotangents: Cotangents, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Pull cotangents back to the radial functions, edge by edge.

    This is for parameters. It does form a tensor of outputs x edges x features, of one
    output in the backward pass of a loss.
    """
    if not any(needed):
        return None, None
    slots, paths = layer.slots, layer.paths
    x, y = layer.sources()
    rows = {}
    for degree, g in zip(paths.degrees, cotangents, strict=True):
        if g is not None:
            with_component = g[:, :, None] if g.dim() == 3 else g
            rows[degree] = layer.to_blocks(with_component, 1)  # (N, n_blocks, m, features)
    n_outputs = next(iter(rows.values())).shape[0]
    shape = (n_outputs, slots.edge.shape[0], layer.n_features)
    zero = layer.value.new_zeros(1, 1, 1).expand(shape)
    parts = []
    for degree, scalars in zip(paths.embed, x, strict=True):
        if degree not in rows:
            parts.append(zero)
            continue
        angular = slots.blocks(harmonics(layer.directions, degree))
        parts.append((angular @ rows[degree]).view(shape) * scalars)
    for degree, tensors in zip(paths.carry, y, strict=True):
        if degree not in rows:
            parts.append(zero)
            continue
        products = slots.blocks(tensors) * rows[degree][:, :, None]
        parts.append(products.sum(dim=3).view(shape))
    functions = torch.cat(parts, dim=2)  # (n_outputs, n_slots, n_paths * n_features)
    value = functions @ layer.weight if needed[0] else None
    weight = functions.transpose(1, 2) @ layer.value if needed[1] else None
    return value, weight
