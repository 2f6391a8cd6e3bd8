import copy

import pytest
import torch
from ase import Atoms
from ase.build import molecule
from torch_geometric.data import Batch, Data

from gnnforce.graph.atom_graph import AtomGraph

H2 = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])
FIELDS = [
    "numbers", "positions", "cell", "pbc", "edge_index", "edge_shifts", "charge",
    "spin_multiplicity",
]  # fmt: skip


def test_documented_shapes_and_types():
    graph = AtomGraph.from_atoms(molecule("H2O"), 5.0)
    assert isinstance(graph, Data)
    shapes = {name: tuple(graph[name].shape) for name in FIELDS}
    assert shapes == {
        "numbers": (3,),
        "positions": (3, 3),
        "cell": (1, 3, 3),
        "pbc": (1, 3),
        "edge_index": (2, 6),
        "edge_shifts": (6, 3),
        "charge": (1,),
        "spin_multiplicity": (1,),
    }
    assert graph.numbers.dtype == graph.edge_index.dtype == torch.int64
    assert graph.pbc.dtype == torch.bool
    assert (graph.n_atoms, graph.n_edges, graph.n_graphs) == (3, 6, 1)
    assert graph.graph_index.tolist() == [0, 0, 0]


def test_lone_atom_has_an_empty_integer_edge_list():  # C01
    graph = AtomGraph.from_atoms(Atoms("H"), 5.0)
    assert graph.edge_index.shape == (2, 0)
    assert graph.edge_index.dtype == torch.int64
    assert graph.num_nodes == graph.n_atoms == 1


@pytest.mark.parametrize("name", ["head_index", "batch_number", "my_index", "face"])
def test_batching_shifts_no_field_but_the_edges(name):  # C05
    graphs = []
    for _ in range(3):
        graph = AtomGraph.from_atoms(H2, 5.0)
        graph[name] = torch.tensor([1])
        graphs.append(graph)
    joined = Batch.from_data_list(graphs)
    assert joined[name].tolist() == [1, 1, 1]
    assert joined.edge_index.tolist() == [[1, 0, 3, 2, 5, 4], [0, 1, 2, 3, 4, 5]]
    assert joined.cell.shape == (3, 3, 3)


def test_atoms_without_edges_are_counted():  # C03
    names = [Atoms("H"), H2, Atoms("H"), Atoms("H")]
    joined = Batch.from_data_list([AtomGraph.from_atoms(a, 5.0) for a in names])
    assert isinstance(joined, AtomGraph)
    assert joined.graph_index.tolist() == [0, 1, 1, 2, 3]
    assert (joined.n_atoms, joined.n_graphs) == (5, 4)
    assert [graph.n_atoms for graph in joined.to_data_list()] == [1, 2, 1, 1]


def test_copies_and_moves():
    graph = AtomGraph.from_atoms(H2, 5.0)
    other = copy.deepcopy(graph)
    other.positions += 1
    assert graph.positions[0, 0] == 0
    assert graph.to("cpu").n_edges == 2
