"""Weighted sums over the edges that leave an atom, one sparse product a feature.

Going back from targets to sources is elementwise in the features: feature ``f`` of an
edge meets feature ``f`` of the cotangent and no other. With features first and outputs last,

    out[f, j, :] = sum over edges e of source j  weights[f, e] * table[f, target(e), :]

is one sparse matrix a feature times a dense matrix of ``n_atoms x n_outputs``. All features
together are one call of ``embedding_bag``, the fastest such product in PyTorch.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

from typing import Any

import torch
from torch import Tensor

from gnnforce.ops.rules import Primitive
from gnnforce.ops.slots import Slots

INT32 = 2**31 - 1
MAX_TERMS = 2**21


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
    n_features, n_atoms = table.shape[:2]
    rows = table.reshape(n_features * n_atoms * terms, -1)
    index, ends = _tables(slots, n_features, terms)
    if torch.is_grad_enabled() and (weights.requires_grad or table.requires_grad):
        total: Tensor = _Bags.apply(weights, rows, index, ends)
        return total
    return _sum_bags(weights, rows, index, ends)


def _sum_bags(weights: Tensor, rows: Tensor, index: Tensor, ends: Tensor) -> Tensor:
    flat = weights.reshape(-1)
    result: Tensor = torch.embedding_bag(rows, index, ends, False, 0, False, flat, True)[
        0
    ]
    return result


def _tables(slots: Slots, n_features: int, terms: int) -> tuple[Tensor, Tensor]:
    """Row of every term of every bag, and where bags begin and end."""
    key = ("bags", n_features, terms)
    if key not in slots.cache:
        targets, ends = slots.target_by_source, slots.source_ends
        # 32-bit numbers are a fourth faster to read
        size = n_features * terms * max(slots.n_atoms, slots.n_edges)
        kind = torch.int32 if size < INT32 else torch.int64
        device = targets.device
        feature = torch.arange(n_features, device=device)[:, None]
        term = torch.arange(terms, device=device)
        row = (feature * slots.n_atoms + targets) * terms  # (n_features, n_edges)
        index = (row[:, :, None] + term).to(kind).view(-1)
        starts = (feature * slots.n_edges + ends[:-1]) * terms
        last = torch.full_like(ends[:1], n_features * terms * slots.n_edges)
        slots.cache[key] = index, torch.cat([starts.view(-1), last]).to(kind)
    return slots.cache[key]


class _Bags(Primitive):
    """``embedding_bag`` with a backward pass that is differentiated no further."""

    @staticmethod
    def forward(weights: Tensor, rows: Tensor, index: Tensor, ends: Tensor) -> Tensor:
        return _sum_bags(weights, rows, index, ends)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, rows, index, ends = ctx.saved_tensors
        lengths = ends[1:] - ends[:-1]
        n_bags = lengths.shape[0]
        bag = torch.repeat_interleave(
            torch.arange(n_bags, device=ends.device), lengths, output_size=len(index)
        )
        per_term = grad.index_select(0, bag)  # (n_terms, n_columns)
        for_weights = (per_term * rows.index_select(0, index)).sum(1).view_as(weights)
        for_rows = torch.zeros_like(rows)
        values = per_term * weights.reshape(-1, 1)
        where = index.to(torch.int64)[:, None].expand_as(values)
        return for_weights, for_rows.scatter_add_(0, where, values), None, None
