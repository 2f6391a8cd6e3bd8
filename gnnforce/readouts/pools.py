"""Which outputs depend on features only through their sums over a graph, and how."""

from typing import NamedTuple

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.readouts.head import Head, OutputTable
from gnnforce.readouts.stack import HeadStack, atoms_per_graph


class Pools(NamedTuple):
    """Sums of node features that serve many outputs.

    A column is one feature summed over the atoms of a graph with weights that outputs
    share: 1 for heads of kind ``pooled``; the scales of a linear head (``hidden=()``), or
    one element at a time where several linear heads have scales of their own.

    Attributes:
        pooled: Heads of kind ``pooled``, in one block of columns.
        by_head: Linear heads with a block each.
        by_element: Linear heads that share a block for each element.
        n_elements: Of the model.
        n_features: Width of a block.
    """

    pooled: tuple[Head, ...]
    by_head: tuple[Head, ...]
    by_element: tuple[Head, ...]
    n_elements: int
    n_features: int

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads that are served."""
        return self.pooled + self.by_head + self.by_element

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        blocks = bool(self.pooled) + len(self.by_head)
        blocks += self.n_elements if self.by_element else 0
        return blocks * self.n_features


def is_linear(head: Head) -> bool:
    """Tell whether a head is a linear map of each atom's features."""
    return head.kind != "pooled" and not head.hidden


def pools_of(stack: HeadStack, table: OutputTable, n_features: int) -> Pools:
    """Find the pools that need fewer pull-backs than the outputs they serve.

    A group of N outputs that depends on D columns costs min(N, D) pull-backs.

    Args:
        stack: The readouts of the model.
        table: The outputs wanted.
        n_features: Width of the node features.
    """
    n_elements = len(stack.references.elements)
    pooled = tuple(head for head in table.heads if head.kind == "pooled")
    if sum(head.members for head in pooled) <= n_features:
        pooled = ()
    linear = tuple(head for head in table.heads if is_linear(head))
    wide = tuple(head for head in linear if head.members > n_features)
    separate = sum(min(head.members, n_features) for head in linear)
    if linear and n_elements * n_features < separate:
        return Pools(pooled, (), linear, n_elements, n_features)
    return Pools(pooled, wide, (), n_elements, n_features)


def pools_of_all(stack: HeadStack, table: OutputTable, n_features: int) -> Pools | None:
    """Find pools that serve every output, or None when a head has none."""
    pooled = tuple(head for head in table.heads if head.kind == "pooled")
    linear = tuple(head for head in table.heads if is_linear(head))
    if len(pooled) + len(linear) < len(table.heads):
        return None
    n_elements = len(stack.references.elements)
    if len(linear) <= n_elements:
        return Pools(pooled, linear, (), n_elements, n_features)
    return Pools(pooled, (), linear, n_elements, n_features)


def column_cotangents(
    pools: Pools, stack: HeadStack, graph: AtomGraph, features: Tensor
) -> Tensor:
    """Return the slopes of all columns, summed over graphs, in the node features.

    Returns:
        Shape ``(n_columns, n_atoms, n_features)``.
    """
    rows = stack.elements(graph.numbers)
    weights = [features.new_ones(1, graph.n_atoms)] if pools.pooled else []
    for head in pools.by_head:
        scales = stack.references.scales[stack.outputs.names.index(head.name)]
        weights.append(scales.index_select(0, rows)[None].to(features.dtype))
    if pools.by_element:
        each = torch.arange(pools.n_elements, device=rows.device)[:, None]
        weights.append((each == rows).to(features.dtype))
    unit = torch.eye(pools.n_features, dtype=features.dtype, device=features.device)
    blocks = torch.cat(weights)[:, None, :, None] * unit[:, None, :]
    return blocks.flatten(0, 1)  # (n_blocks * n_features, n_atoms, n_features)


def column_slopes(
    pools: Pools, stack: HeadStack, graph: AtomGraph, of_pooled: Tensor | None
) -> dict[str, Tensor]:
    """Return the slopes of outputs in the columns.

    Args:
        pools: The pools.
        stack: The readouts.
        graph: The graph or batch.
        of_pooled: Slopes of the ``pooled`` heads in the summed features, ``(n_outputs,
            n_graphs, n_features)``; None without such heads.

    Returns:
        By head, shape ``(members, n_graphs, n_columns)``.
    """
    slopes: dict[str, Tensor] = {}
    before, width = 0, pools.n_features
    if of_pooled is not None:
        after = pools.n_columns - width
        parts = of_pooled.split([head.members for head in pools.pooled])
        for head, part in zip(pools.pooled, parts, strict=True):
            slopes[head.name] = torch.nn.functional.pad(part, (0, after))
        before = width
    for number, head in enumerate(pools.by_head):
        row = _linear_slopes(stack, head, graph)
        start = before + number * width
        after = pools.n_columns - start - width
        slopes[head.name] = torch.nn.functional.pad(row, (start, after))
    for head in pools.by_element:
        row = _linear_slopes(stack, head, graph)[:, :, None, :]  # (n, G, 1, F)
        scales = stack.references.scales[stack.outputs.names.index(head.name)]
        row = (row * scales.to(row.dtype)[:, None]).flatten(2)
        slopes[head.name] = torch.nn.functional.pad(row, (before, 0))
    return slopes


def _linear_slopes(stack: HeadStack, head: Head, graph: AtomGraph) -> Tensor:
    """Slopes of a linear head in its weighted sums, ``(members, n_graphs, F)``."""
    weights = stack.linear_weights(head)[:, None, :]  # (members, 1, n_features)
    if head.kind == "node_mean":
        return weights / atoms_per_graph(graph).to(weights.dtype)
    return weights.expand(-1, graph.n_graphs, -1)
