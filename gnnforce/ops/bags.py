"""Weighted sums over the edges that leave an atom, one sparse product a feature.

Going back from targets to sources is elementwise in the features: feature ``f`` of an
edge meets feature ``f`` of the cotangent and no other. With features first and outputs last,

    out[f, j, :] = sum over edges e of source j  weights[f, e] * table[f, target(e), :]

is one sparse matrix a feature times a dense matrix of ``n_atoms x n_outputs``. All features
together are one call of ``embedding_bag``, the fastest such product in PyTorch.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

import math
from typing import Any

import torch
from torch import Tensor

from gnnforce.ops.rules import Primitive, is_batched
from gnnforce.ops.scatter import scatter_sum
from gnnforce.ops.slots import Slots, count

INT32 = 2**31 - 1
MAX_TERMS = 2**21
MAX_PRODUCTS = 2**18  # of one step towards the weights, so that it stays in the cache


def send(weights: Tensor, table: Tensor, slots: Slots) -> Tensor:
    r"""Sum what the targets of an atom's outgoing edges hold.

    .. math:: \mathrm{out}_{f j m n} = \sum_{e:\,\mathrm{source}(e) = j}
              w_{f e}\, t_{f\,\mathrm{target}(e)\,m n}

    Args:
        weights: ``w``, edges in the order of their source, ``(n_features, n_edges)``.
        table: ``t``, shape ``(n_features, n_atoms, m, n_outputs)``, contiguous.
        slots: The layout of the graph.

    Returns:
        Shape ``(n_features, n_atoms, m, n_outputs)``.
    """
    step = _step(slots, 1)
    if step >= len(weights):
        return _bags(weights, table, slots, 1).view(table.shape)
    parts = [
        _bags(w, t, slots, 1).view(t.shape)
        for w, t in zip(weights.split(step), table.split(step), strict=True)
    ]
    return torch.cat(parts)


def send_contracted(
    weights: Tensor, factors: Tensor, table: Tensor, slots: Slots
) -> Tensor:
    r"""Sum what the targets of outgoing edges hold, contracted with the edge's harmonics.

    .. math:: \mathrm{out}_{f j n} = \sum_{e:\,\mathrm{source}(e) = j} \sum_m
              w_{f e}\, y_{e m}\, t_{f\,\mathrm{target}(e)\,m n}

    Args:
        weights: ``w``, edges by source, shape ``(n_features, n_edges)``.
        factors: ``y``, edges by source, shape ``(n_edges, m)``.
        table: ``t``, shape ``(n_features, n_atoms, m, n_outputs)``, contiguous.
        slots: The layout of the graph.

    Returns:
        Shape ``(n_features, n_atoms, n_outputs)``.
    """
    terms = factors.shape[1]
    step = _step(slots, terms)
    if step >= len(weights):
        total = _bags(weights[:, :, None] * factors, table, slots, terms)
        return total.view(*table.shape[:2], table.shape[3])
    parts = [
        _bags(w[:, :, None] * factors, t, slots, terms).view(*t.shape[:2], t.shape[3])
        for w, t in zip(weights.split(step), table.split(step), strict=True)
    ]
    return torch.cat(parts)


def _step(slots: Slots, terms: int) -> int:
    """Features that are summed together, so that index tables stay small."""
    return max(1, MAX_TERMS // max(1, slots.n_edges * terms))


def _bags(weights: Tensor, table: Tensor, slots: Slots, terms: int) -> Tensor:
    """Sum bags of ``terms`` rows an edge; ``weights`` is ``(f, n_edges, [terms])``."""
    if torch.is_grad_enabled() and (weights.requires_grad or table.requires_grad):
        result: Tensor = _Bags.apply(weights, table, slots, terms)
        return result
    return _sum_bags(weights, table, _by_source(slots, table.shape[0], terms), terms)


def _sum_bags(
    weights: Tensor, table: Tensor, places: tuple[Tensor, Tensor], terms: int
) -> Tensor:
    n_features, n_atoms = table.shape[:2]
    columns = math.prod(table.shape[2:]) // terms  # there may be no rows to infer it from
    rows = table.reshape(n_features * n_atoms * terms, columns)
    index, ends = places
    flat = weights.reshape(-1)
    sums = torch.embedding_bag(rows, index, ends, False, 0, False, flat, True)[0]
    return sums.view(n_features, n_atoms, columns)


def _by_source(slots: Slots, n_features: int, terms: int) -> tuple[Tensor, Tensor]:
    """Row of every term of the bags of sources, and where bags begin and end."""
    key = ("by source", n_features, terms)
    if key not in slots.cache:
        slots.cache[key] = _places(
            slots.target_by_source, slots.source_ends, n_features, terms
        )
    return slots.cache[key]


def _by_target(slots: Slots, n_features: int) -> tuple[Tensor, Tensor]:
    """The same for the bags of targets, which receive from sources."""
    key = ("by target", n_features, 1)
    if key not in slots.cache:
        order = _order_by_target(slots)
        sources = slots.source.index_select(
            0, slots.slot_by_source.index_select(0, order)
        )
        ends = torch.zeros_like(slots.source_ends)
        ends[1:] = count(slots.target_by_source, slots.n_atoms).cumsum(0)
        slots.cache[key] = _places(sources, ends, n_features, 1)
    return slots.cache[key]


def _order_by_target(slots: Slots) -> Tensor:
    """Places, in the order of sources, of the edges in the order of targets."""
    key = ("order", 1, 1)
    if key not in slots.cache:
        order = torch.argsort(slots.slot_by_source)
        slots.cache[key] = order, order
    return slots.cache[key][0]


def _places(
    atoms: Tensor, ends: Tensor, n_features: int, terms: int
) -> tuple[Tensor, Tensor]:
    """Repeat a sparse pattern of atoms for every feature and term."""
    n_edges, n_atoms = atoms.shape[0], ends.shape[0] - 1
    # 32-bit numbers are a fourth faster to read
    size = n_features * terms * max(n_atoms, n_edges)
    kind = torch.int32 if size < INT32 else torch.int64
    atoms, ends = atoms.to(kind), ends.to(kind)
    feature = torch.arange(n_features, device=atoms.device, dtype=kind)[:, None]
    term = torch.arange(terms, device=atoms.device, dtype=kind)
    row = (feature * n_atoms + atoms) * terms  # (n_features, n_edges)
    index = row.view(-1) if terms == 1 else (row[:, :, None] + term).view(-1)
    starts = (feature * n_edges + ends[:-1]) * terms
    last = torch.full_like(ends[:1], n_features * terms * n_edges)
    return index, torch.cat([starts.view(-1), last])


class _Bags(Primitive):
    """The sum of bags with a backward pass, for training.

    ``embedding_bag`` has no derivatives of its own that would be fast. Where derivatives of the
    backward pass are recorded, or its cotangents are batched, that pass takes PyTorch's plain
    operations, edge by edge. (``once_differentiable`` would not do: ``autograd.grad`` passes
    by the error that it plants, and silently leaves terms out.)
    """

    @staticmethod
    def forward(weights: Tensor, table: Tensor, slots: Slots, terms: int) -> Tensor:
        places = _by_source(slots, table.shape[0], terms)
        return _sum_bags(weights, table, places, terms)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weights, table, ctx.slots, ctx.terms = inputs
        ctx.save_for_backward(weights, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, table = ctx.saved_tensors
        needs_weights, needs_table, *_ = ctx.needs_input_grad
        of_weights = of_table = None
        if torch.is_grad_enabled() or is_batched((grad,)):
            pulled = _pull_by_edge(grad, weights, table, ctx.slots, ctx.terms)
            return *pulled, None, None
        if needs_weights:
            of_weights = _pull_weights(grad, table, ctx.slots, ctx.terms)
            of_weights = of_weights.view(weights.shape)
        if needs_table:
            of_table = _pull_table(grad, weights, ctx.slots, ctx.terms)
            of_table = of_table.view(table.shape)
        return of_weights, of_table, None, None


def _pull_by_edge(
    grad: Tensor, weights: Tensor, table: Tensor, slots: Slots, terms: int
) -> tuple[Tensor, Tensor]:
    """Return cotangents of weights and table, by operations with all derivatives."""
    target = slots.target_by_source
    source = slots.source.index_select(0, slots.slot_by_source)
    n_features, n_atoms, columns = grad.shape
    by_edge = weights.reshape(n_features, slots.n_edges, terms, 1)
    rows = table.reshape(n_features, n_atoms, terms, columns)
    there = grad.index_select(1, source)[:, :, None]  # (f, n_edges, 1, columns)
    of_weights = (rows.index_select(1, target) * there).sum(dim=3)
    received = scatter_sum((by_edge * there).transpose(0, 1), target, n_atoms)
    return of_weights.view(weights.shape), received.transpose(0, 1).reshape(table.shape)


def _pull_table(grad: Tensor, weights: Tensor, slots: Slots, terms: int) -> Tensor:
    """Return what targets receive, ``(f, n_atoms, terms, columns)``."""
    places = _by_target(slots, grad.shape[0])
    ordered = weights.index_select(1, _order_by_target(slots))
    if terms == 1:
        return _sum_bags(ordered, grad, places, 1)
    parts = [_sum_bags(w, grad, places, 1) for w in ordered.unbind(2)]
    return torch.stack(parts, dim=2)


def _pull_weights(grad: Tensor, table: Tensor, slots: Slots, terms: int) -> Tensor:
    """Contract what the ends of an edge hold, ``(f, n_edges, terms)``."""
    target = slots.block_target
    own = table if target is None else table.index_select(1, target)
    own = own.reshape(table.shape[0], slots.n_blocks, terms, grad.shape[2])
    step = max(1, MAX_PRODUCTS // max(1, slots.edge.shape[0] * grad.shape[2]))
    parts = []
    for here, far in zip(own.split(step), grad.split(step), strict=True):
        there = far.index_select(1, slots.source)  # (features, n_slots, columns)
        there = there.view(there.shape[0] * slots.n_blocks, slots.width, grad.shape[2])
        products = torch.bmm(there, here.flatten(0, 1).transpose(1, 2))
        parts.append(products.view(here.shape[0], slots.edge.shape[0], terms))
    return torch.cat(parts).index_select(1, slots.slot_by_source)
