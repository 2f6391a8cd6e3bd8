"""The tensors a prediction starts from."""

from functools import lru_cache

import torch
from torch import Tensor

from gnnforce.errors import GeometryError
from gnnforce.graph.atom_graph import AtomGraph

FIELDS = (
    "numbers",
    "positions",
    "cell",
    "pbc",
    "edge_index",
    "edge_shifts",
    "charge",
    "spin_multiplicity",
)


def usable(graph: AtomGraph) -> AtomGraph:
    """Return a graph whose tensors autograd can keep.

    Tensors made under ``inference_mode`` cannot be saved for a backward pass; a graph of
    such tensors is copied, every other one is returned as it is.

    Args:
        graph: A graph or batch.

    Returns:
        The graph, or a copy with the fields that a model reads.
    """
    if not graph.positions.is_inference():
        return graph
    fields = {name: graph[name].clone() for name in FIELDS}
    return AtomGraph(**fields, batch=graph.graph_index.clone())


def check_cutoff(graph: AtomGraph, cutoff: float) -> None:
    """Raise when a graph lacks neighbors that a model would see.

    A graph without the field ``cutoff`` was made by hand and is trusted. Only a graph on
    the CPU is looked at; one on another device came from there.

    Raises:
        GeometryError: Names both radii.
    """
    made_for = graph.get("cutoff")
    if made_for is None or made_for.device.type != "cpu" or not made_for.numel():
        return
    smallest = float(made_for.min())
    if smallest < cutoff * (1 - 1e-12):
        raise GeometryError(
            f"the graph was made for a cutoff of {smallest:g} Angstrom and lacks neighbors "
            f"of the model, whose cutoff is {cutoff:g}; use from_atoms(atoms, model.cutoff)"
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
    positions = graph.positions.detach()
    ghosts = _isolated(tuple(elements), positions.dtype, positions.device)
    numbers, zeros, falses, steps = ghosts
    return AtomGraph(
        numbers=torch.cat([graph.numbers, numbers]),
        positions=torch.cat([positions, zeros[:, 0]]),
        cell=torch.cat([graph.cell.detach(), zeros]),
        pbc=torch.cat([graph.pbc, falses]),
        edge_index=graph.edge_index,
        edge_shifts=graph.edge_shifts,
        charge=torch.cat([graph.charge, zeros[:, 0, 0]]),
        spin_multiplicity=torch.cat([graph.spin_multiplicity, zeros[:, 0, 0] + 1]),
        batch=torch.cat([graph.graph_index, steps + graph.n_graphs]),
    )


@lru_cache(maxsize=16)
def _isolated(
    elements: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Numbers, zero cells, no periodicity and graph offsets, made once."""
    n = len(elements)
    return (
        torch.tensor(elements, device=device),
        torch.zeros(n, 3, 3, dtype=dtype, device=device),
        torch.zeros(n, 3, dtype=torch.bool, device=device),
        torch.arange(n, device=device),
    )
