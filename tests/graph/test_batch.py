import pytest
import torch
from ase import Atoms

from gnnforce.errors import DataError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch


def test_empty_structures_keep_their_place():
    structures = [Atoms(), Atoms("H"), Atoms()]
    joined = batch([AtomGraph.from_atoms(atoms, 5.0) for atoms in structures])
    assert (joined.n_graphs, joined.n_atoms) == (3, 1)
    assert joined.graph_index.tolist() == [1]


def test_nothing_to_join():
    with pytest.raises(DataError, match="at least one"):
        batch([])


@pytest.mark.parametrize("order", [1, -1])
def test_field_of_one_graph_only_is_named(order):  # C05
    graphs = [AtomGraph.from_atoms(Atoms("H"), 5.0) for _ in range(2)]
    graphs[1].energy = torch.tensor([1.0])
    with pytest.raises(DataError, match="energy"):
        batch(graphs[::order])
