"""Strategy ``forward``: push coordinates forward instead of pulling outputs back."""

import torch
from torch import Tensor

from gnnforce.derivatives.forward import (
    STRAINS,
    contract_nodes,
    forces_from_directions,
    places_of,
    push_forward,
    tangents_of,
    virials_from_directions,
)
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.stages import Slopes, Task, node_cotangents, split_rows
from gnnforce.ops.scatter import one_cotangent
from gnnforce.readouts.stack import Outputs


def largest_graph(graph: AtomGraph, *, may_wait: bool) -> int:
    """Return the number of atoms of the largest graph of a batch.

    A batch made by ``gnnforce.batch`` carries the sizes of its graphs on the host. Of any
    other batch they are counted, for which the host waits if it is on another device.

    Args:
        graph: A graph or batch.
        may_wait: Waiting for the device is in order; otherwise the atoms of all graphs
            together are returned where it would be needed.
    """
    if graph.n_graphs <= 1:
        return graph.n_atoms
    slices = getattr(graph, "_slice_dict", None)
    if slices is not None and "numbers" in slices:
        return int(slices["numbers"].diff().max())
    if graph.numbers.device.type != "cpu" and not may_wait:
        return graph.n_atoms
    return int(torch.bincount(graph.graph_index, minlength=graph.n_graphs).max())


def n_directions(graph: AtomGraph, *, forces: bool, virial: bool, may_wait: bool) -> int:
    """Return the coordinates of the largest graph for forces, and six strains for a virial."""
    moves = 3 * largest_graph(graph, may_wait=may_wait) if forces else 0
    return moves + (STRAINS if virial else 0)


def by_forward(task: Task) -> tuple[Outputs, Slopes]:
    """Contract node cotangents of all outputs with tangents of all directions."""
    graph, point = task.graph, task.leaf.detach()
    places = places_of(graph, largest_graph(graph, may_wait=True))
    first = 0 if task.forces else places.n_directions
    last = places.n_directions + (STRAINS if task.virial else 0)
    numbers = torch.arange(first, last, device=point.device)
    out: Outputs | None = None
    parts: list[Tensor] = []
    for piece in numbers.split(task.per_piece):
        directions = tangents_of(graph, point, places, piece)
        with torch.set_grad_enabled(task.create_graph):
            rows, tangents = node_tangents(task, point, directions)
        if out is None:  # the value is the same in every piece
            out, cotangents = node_cotangents(task, split_rows(task, rows), task.table)
        parts.append(contract_nodes(cotangents, tangents, graph))
    assert out is not None
    slopes = torch.cat(parts, dim=2).to(task.vectors.dtype)
    values: Slopes = {}
    if task.forces:
        values["forces"] = forces_from_directions(slopes, places)
    if task.virial:
        values["virial"] = virials_from_directions(slopes)
    return out, values


def node_tangents(task: Task, point: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Return node features, and their derivatives along directions.

    Returns:
        Rows of atoms and isolated atoms ``(n_rows, n_features)``, and ``(n_directions,
        n_atoms, n_features)``.
    """

    def function(vectors: Tensor) -> Tensor:
        # PyTorch's own operations push forward at half the cost of a Function's rules
        with one_cotangent():
            return task.model.node_rows(task.graph, vectors)

    if directions.shape[0] == 0:  # a batch without atoms
        rows = function(point)
        return rows, rows.new_zeros(0, task.graph.n_atoms, rows.shape[1])
    rows, tangents = push_forward(function, point, directions)
    return rows, tangents[:, : task.graph.n_atoms]
