"""The backward rule of the sum over neighbors.

Cotangents of all outputs, ``C``, are kept with features first and outputs last. Back to the
geometry, every atom contracts its cotangents with its own edges, a batched matrix product;
back to the neighbors, every feature is a sparse product (:mod:`gnnforce.ops.bags`). No
tensor of outputs x edges x features is formed.
"""

import torch
from torch import Tensor

from gnnforce.ops.bags import send, send_contracted
from gnnforce.ops.edges import Layer, OfEdges
from gnnforce.ops.harmonics import harmonics, pull_harmonics
from gnnforce.ops.rows import plus_product
from gnnforce.ops.rules import Cotangents
from gnnforce.ops.scatter import scatter_sum


def pull_sum(
    layer: Layer, edges: OfEdges, cotangents: Cotangents, needed: tuple[bool, ...]
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
        # in the backward pass of a loss; with the geometry, features first are faster
        plain = not (needed[0] or needed[1])
        single = plain and next(iter(first.values())).shape[-1] == 1
        rows = (
            _to_sources_by_edge(layer, edges, cotangents)
            if single
            else _to_sources(layer, first)
        )
    # slopes and what is sent enter the rules only
    return lengths, directions, value, None, None, weight, *rows


def _features_first(g: Tensor) -> Tensor:
    """Return ``(n_features, n_atoms, m, n_outputs)``; no copy between primitives."""
    g = g[:, :, None] if g.dim() == 3 else g
    return g.permute(3, 1, 2, 0).contiguous()


def _to_geometry(
    layer: Layer, edges: OfEdges, cotangents: dict[int, Tensor]
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
        along = _add_product(along, jacobian, c)
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


def _slopes_along(layer: Layer, edges: OfEdges, degree: int) -> Tensor:
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


def _add_product(total: Tensor | None, jacobian: Tensor, c: Tensor) -> Tensor:
    """Contract components and features: ``(B, width, m, f)`` with ``(B, f, m, N)``."""
    if torch.is_grad_enabled():  # the derivative of a slice is a tensor full of zeros
        product = torch.bmm(jacobian.flatten(2), c.transpose(1, 2).flatten(1, 2))
        return product if total is None else total + product
    for m in range(c.shape[2]):
        if total is None:
            total = torch.bmm(jacobian[:, :, m], c[:, :, m])
        else:
            total.baddbmm_(jacobian[:, :, m], c[:, :, m])
    assert total is not None
    return total


def _to_sources(layer: Layer, cotangents: dict[int, Tensor]) -> Cotangents:
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


def _at_blocks(layer: Layer, cotangents: Cotangents) -> dict[int, Tensor]:
    """Return cotangents of the targets of blocks, ``(N, n_blocks, m, n_features)``."""
    return {
        degree: layer.to_blocks(g[:, :, None] if g.dim() == 3 else g, 1)
        for degree, g in zip(layer.paths.degrees, cotangents, strict=True)
        if g is not None
    }


def _embedded(layer: Layer, at_blocks: Tensor, degree: int) -> Tensor:
    """Contract cotangents of targets with the harmonics, ``(N, n_slots, n_features)``."""
    angular = layer.slots.blocks(harmonics(layer.directions, degree))
    shape = at_blocks.shape[0], layer.slots.edge.shape[0], layer.n_features
    return (angular @ at_blocks).view(shape)


def _to_sources_by_edge(
    layer: Layer, edges: OfEdges, cotangents: Cotangents
) -> Cotangents:
    """Do what :func:`_to_sources` does, for one output: edge by edge is faster then."""
    slots, paths = layer.slots, layer.paths
    at_blocks = _at_blocks(layer, cotangents)
    rows: list[Tensor | None] = []
    for degree, radial in zip(paths.embed, edges.values, strict=False):
        if degree not in at_blocks:
            rows.append(None)
            continue
        sent = radial * _embedded(layer, at_blocks[degree], degree)[0]
        rows.append(scatter_sum(sent, slots.source, slots.n_atoms)[None])
    for degree, radial in zip(paths.carry, edges.values[len(paths.embed) :], strict=True):
        if degree not in at_blocks:
            rows.append(None)
            continue
        moved = slots.blocks(radial)[:, :, None] * at_blocks[degree][0][:, None]
        moved = moved.view(slots.edge.shape[0], 2 * degree + 1, layer.n_features)
        total = scatter_sum(moved, slots.source, slots.n_atoms)[None]
        rows.append(total[:, :, 0] if degree == 0 else total)
    return tuple(rows)


def _to_radial(
    layer: Layer, edges: OfEdges, cotangents: Cotangents, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Pull cotangents back to the radial functions, edge by edge.

    This is for parameters. It does form a tensor of outputs x edges x features, of one
    output in the backward pass of a loss.
    """
    if not any(needed):
        return None, None
    slots, paths = layer.slots, layer.paths
    rows = _at_blocks(layer, cotangents)
    n_outputs = next(iter(rows.values())).shape[0]
    shape = (n_outputs, slots.edge.shape[0], layer.n_features)
    zero = layer.value.new_zeros(1, 1, 1).expand(shape)
    parts = []
    for degree, scalars in zip(paths.embed, edges.x, strict=True):
        if degree not in rows:
            parts.append(zero)
            continue
        parts.append(_embedded(layer, rows[degree], degree) * scalars)
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
