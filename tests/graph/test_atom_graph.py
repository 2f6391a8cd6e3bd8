import copy
import pickle

import pytest
import torch
from ase import Atoms
from torch_geometric.data import Data

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.leaves import FIELDS
from gnnforce.testing.systems import water

LONE = {
    "none": Atoms("H"),
    "box": Atoms("H", cell=[100, 100, 100]),
    "periodic": Atoms("H", cell=[100, 100, 100], pbc=True),
}


@pytest.mark.parametrize("name", LONE)
def test_lone_atom(name):
    """C01: an edge list of no edges, with its shape and type."""
    graph = AtomGraph.from_atoms(LONE[name], 5.0)
    assert (graph.n_atoms, graph.n_edges, graph.n_graphs) == (1, 0, 1)
    assert graph.edge_index.shape == (2, 0)
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_shifts.shape == (0, 3)


def test_atoms_without_edges_are_counted():
    """C02: PyG would take the number of atoms from the largest index of an edge."""
    graph = AtomGraph.from_atoms(Atoms("H3", [[0, 0, 0], [0, 0, 0.74], [0, 0, 20]]), 5.0)
    assert graph.n_atoms == graph.num_nodes == 3
    assert graph.n_edges == graph.num_edges == 2
    assert graph.graph_index.tolist() == [0, 0, 0]


def test_an_empty_structure():
    graph = AtomGraph.from_atoms(Atoms(), 5.0)
    assert (graph.n_atoms, graph.n_edges, graph.n_graphs) == (0, 0, 1)


def test_documented_shapes():
    graph = AtomGraph.from_atoms(water(), 5.0)
    assert {name: tuple(graph[name].shape) for name in (*FIELDS, "cutoff")} == {
        "numbers": (3,),
        "positions": (3, 3),
        "cell": (1, 3, 3),
        "pbc": (1, 3),
        "edge_index": (2, 6),
        "edge_shifts": (6, 3),
        "charge": (1,),
        "spin_multiplicity": (1,),
        "cutoff": (1,),
    }
    assert graph.pbc.dtype == torch.bool


def test_it_is_a_pyg_graph():
    graph = AtomGraph.from_atoms(water(), 5.0)
    assert isinstance(graph, Data)
    assert not graph.is_directed()
    assert not graph.has_isolated_nodes()
    moved = graph.clone().to("cpu")
    assert isinstance(moved, AtomGraph)
    assert torch.equal(moved.positions, graph.positions)


def test_only_edges_are_renumbered():
    """C05: names that hold "index" or "batch" change nothing."""
    graphs = [AtomGraph.from_atoms(water(), 5.0) for _ in range(3)]
    for graph in graphs:
        graph.head_index = torch.tensor([1])
        graph.my_batch = torch.tensor([7])
        graph.faces = torch.ones(1, 2)
        graph.frame_index = torch.tensor([[1, 2]])
    both = batch(graphs)
    assert both.head_index.tolist() == [1, 1, 1]
    assert both.my_batch.tolist() == [7, 7, 7]
    assert both.faces.shape == (3, 2)
    assert both.frame_index.tolist() == [[1, 2]] * 3
    assert both.cell.shape == (3, 3, 3)
    assert both.edge_index.max().item() == 8


def test_copies():
    graph = AtomGraph.from_atoms(water(), 5.0)
    for twin in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert type(twin) is AtomGraph
        assert twin.n_atoms == 3
        assert torch.equal(twin.edge_index, graph.edge_index)
        twin.positions += 1
        assert not torch.equal(twin.positions, graph.positions)
