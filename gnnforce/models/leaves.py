"""The tensors a prediction starts from."""

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph


def detached_copy(graph: AtomGraph) -> AtomGraph:
    """Return the graph's tensors free of any autograd history.

    The model must neither change the user's graph nor hang its results on the history
    of the positions. Tensors made under ``inference_mode`` are copied, because autograd
    refuses to keep them; all others are shared.

    Args:
        graph: A graph or batch.

    Returns:
        A new graph with the fields a model reads.
    """
    return AtomGraph(
        numbers=_usable(graph.numbers),
        positions=_usable(graph.positions),
        cell=_usable(graph.cell),
        pbc=_usable(graph.pbc),
        edge_index=_usable(graph.edge_index),
        edge_shifts=_usable(graph.edge_shifts),
        charge=_usable(graph.charge),
        spin_multiplicity=_usable(graph.spin_multiplicity),
        batch=_usable(graph.graph_index),
    )


def with_isolated_atoms(graph: AtomGraph, elements: list[int]) -> AtomGraph:
    """Append one isolated atom of every element, each a graph of its own.

    The readouts subtract what the network says of an isolated atom; computing that in
    the same pass costs a few rows instead of a second launch of every operation.

    Args:
        graph: A graph or batch.
        elements: Atomic numbers of the model.

    Returns:
        A new graph with the same edges and ``len(elements)`` more atoms and graphs.
    """
    n = len(elements)
    zeros = graph.positions.new_zeros
    numbers = torch.tensor(elements, device=graph.numbers.device)
    own_graph = torch.arange(graph.n_graphs, graph.n_graphs + n, device=numbers.device)
    return AtomGraph(
        numbers=torch.cat([graph.numbers, numbers]),
        positions=torch.cat([graph.positions, zeros(n, 3)]),
        cell=torch.cat([graph.cell, zeros(n, 3, 3)]),
        pbc=torch.cat([graph.pbc, torch.zeros_like(graph.pbc[:1]).expand(n, 3)]),
        edge_index=graph.edge_index,
        edge_shifts=graph.edge_shifts,
        charge=torch.cat([graph.charge, zeros(n)]),
        spin_multiplicity=torch.cat([graph.spin_multiplicity, zeros(n) + 1]),
        batch=torch.cat([graph.graph_index, own_graph]),
    )


def _usable(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor.detach()
