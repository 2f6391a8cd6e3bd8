"""Outputs of pooled features: the Jacobian of the features, then matrix products."""

import torch
from torch import Tensor

from gnnforce.derivatives.splitting import DEFAULT_MEMORY, rows_at_once
from gnnforce.graph.atom_graph import AtomGraph


def contract_pooled(
    slopes: Tensor, rows: Tensor, graph_index: Tensor, memory: int = DEFAULT_MEMORY
) -> Tensor:
    r"""Multiply readout gradients with the Jacobian of pooled features.

    .. math:: G_{nix} = \sum_t \frac{\partial E_n}{\partial P_{g(i)t}}\,
              \frac{\partial P_{g(i)t}}{\partial R_{ix}}

    Exact because what belongs to one graph changes the pooled features of that graph
    only, so that one pull-back a feature serves every graph of a batch.

    Args:
        slopes: Of every output in the features, ``(n_outputs, n_graphs, n_pooled)``.
        rows: Jacobian of the features, ``(n_pooled, n_rows, ...)``.
        graph_index: The graph of each row, ``(n_rows,)``.
        memory: Limit in bytes for the slopes copied to the rows of a batch.

    Returns:
        Shape ``(n_outputs, n_rows, ...)``.

    Example:
        >>> rows = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two features, one atom
        >>> contract_pooled(torch.tensor([[[2.0, 3.0]]]), rows, torch.tensor([0]))
        tensor([[[2., 3.]]])
    """
    tail = rows.shape[2:]
    flat = rows.flatten(2)  # (n_pooled, n_rows, n_values)
    if slopes.shape[1] == 1:
        whole = slopes[:, 0] @ flat.flatten(1)  # one wide product
        return whole.unflatten(1, rows.shape[1:])
    by_row = flat.transpose(0, 1)  # (n_rows, n_pooled, n_values)
    parts = []
    for part in _pieces(slopes, graph_index.shape[0] * slopes.shape[2], memory):
        own = part.transpose(0, 1).index_select(0, graph_index)  # (n_rows, n, n_pooled)
        parts.append(torch.bmm(own, by_row).transpose(0, 1))  # (n, n_rows, n_values)
    return torch.cat(parts).unflatten(2, tail)


def combine_nodes(
    weights: Tensor, cotangents: Tensor, graph: AtomGraph, memory: int = DEFAULT_MEMORY
) -> Tensor:
    r"""Add node cotangents of outputs to those of combinations.

    .. math:: C_{cif} = \sum_n w_{cn\,g(i)}\, C_{nif}

    Args:
        weights: Shape ``(n_combinations, n_outputs, n_graphs)``.
        cotangents: Shape ``(n_outputs, n_atoms, n_features)``.
        graph: The graph or batch of the atoms.
        memory: Limit in bytes for the weights copied to the atoms of a batch.

    Returns:
        Shape ``(n_combinations, n_atoms, n_features)``.
    """
    if graph.n_graphs == 1:
        whole = weights[:, :, 0] @ cotangents.flatten(1)
        return whole.unflatten(1, cotangents.shape[1:])
    by_atom = cotangents.transpose(0, 1)  # (n_atoms, n_outputs, n_features)
    parts = []
    for part in _pieces(weights, graph.n_atoms * weights.shape[1], memory):
        own = part.movedim(2, 0).index_select(0, graph.graph_index)
        parts.append(torch.bmm(own, by_atom).transpose(0, 1))
    return torch.cat(parts)


def _pieces(rows: Tensor, numbers_per_row: int, memory: int) -> tuple[Tensor, ...]:
    """Split rows so that their copies fit into a limit."""
    size = rows_at_once(rows.shape[0], numbers_per_row * rows.itemsize, memory)
    return rows.split(size)
