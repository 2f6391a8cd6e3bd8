import torch
from ase import Atoms
from ase.build import bulk, molecule

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.split import split


def graphs() -> list[AtomGraph]:
    charged = molecule("H2O")
    charged.info["charge"] = 1
    charged.info["spin_multiplicity"] = 2
    structures = [charged, Atoms(), bulk("Si"), Atoms("H"), molecule("CH4")]
    return [AtomGraph.from_atoms(one, 4.0) for one in structures]


def test_inverse_of_batch():
    before = graphs()
    after = split(batch(before))
    assert len(after) == len(before)
    for one, other in zip(before, after, strict=True):
        assert set(one.keys()) == set(other.keys())
        for name in set(one.keys()) - {"num_nodes"}:
            assert torch.equal(one[name], other[name]), name
        assert (one.n_atoms, one.num_nodes) == (other.n_atoms, other.num_nodes)


def test_atoms_in_any_order():
    both = batch([graphs()[0], graphs()[4]])
    order = torch.tensor([3, 0, 4, 1, 5, 2, 6, 7])
    place = torch.argsort(order)
    mixed = AtomGraph(
        **{n: both[n][order] for n in ("numbers", "positions", "batch")},
        **{n: both[n] for n in ("cell", "pbc", "charge", "spin_multiplicity")},
        edge_index=place[both.edge_index],
        edge_shifts=both.edge_shifts,
    )
    for one, other in zip(split(both), split(mixed), strict=True):
        assert torch.equal(one.positions, other.positions)
        assert torch.equal(one.edge_index, other.edge_index)


def test_one_graph_is_itself():
    graph = graphs()[0]
    graph["energy_labels"] = torch.zeros(1, 1)
    (one,) = split(graph)
    assert torch.equal(one.positions, graph.positions)
    assert "energy_labels" not in one
