import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule

from gnnforce.errors import GeometryError
from gnnforce.graph.batch import batch
from gnnforce.graph.convert import (
    atoms_from_graph,
    graph_from_atoms,
    spin_multiplicity,
    total_charge,
)
from gnnforce.graph.views import edge_vectors
from gnnforce.testing.systems import five_elements, skewed_pair, water


def test_fields_of_a_graph():
    atoms = skewed_pair()
    graph = graph_from_atoms(atoms, 4.5)
    assert graph.numbers.tolist() == [29, 29]
    assert torch.equal(graph.positions, torch.from_numpy(atoms.positions))
    assert torch.equal(graph.cell, torch.from_numpy(atoms.cell.array)[None])
    assert graph.pbc.tolist() == [[True, True, True]]
    assert graph.charge.tolist() == [0.0]
    assert graph.spin_multiplicity.tolist() == [1.0]
    assert graph.numbers.dtype == graph.edge_index.dtype == torch.int64
    floats = ("positions", "cell", "edge_shifts", "charge", "spin_multiplicity")
    assert {graph[name].dtype for name in floats} == {torch.float64}
    rounded = graph_from_atoms(atoms, 4.5, torch.float32)
    assert {rounded[name].dtype for name in floats} == {torch.float32}


def test_a_graph_shares_no_memory_with_the_atoms():
    atoms = skewed_pair()
    state = atoms.positions.tobytes(), atoms.cell.array.tobytes(), atoms.numbers.tobytes()
    graph = graph_from_atoms(atoms, 4.5)
    for name in ("positions", "cell", "numbers"):
        graph[name].mul_(2)
    assert state == (
        atoms.positions.tobytes(),
        atoms.cell.array.tobytes(),
        atoms.numbers.tobytes(),
    )


@pytest.mark.parametrize("pbc", [True, False])
def test_single_precision_far_from_the_origin(pbc):
    """C10, C07: the positions are brought near before they are rounded."""
    near = five_elements(periodic=pbc)
    far = near.copy()
    far.positions += [4000.0, -4200e2, 0]
    if pbc:
        far.positions[2] += 3 * far.cell.array[0]
    exact = edge_vectors(graph_from_atoms(near, 3.0))
    found = edge_vectors(graph_from_atoms(far, 3.0, torch.float32))
    assert found.dtype == torch.float32
    lengths = exact.norm(dim=1).sort().values.float()
    torch.testing.assert_close(
        found.norm(dim=1).sort().values, lengths, rtol=0, atol=3e-6
    )


@pytest.mark.parametrize(
    ("info", "charge"),
    [
        ({}, 0),
        ({"charge": -1}, -1),
        ({"charge": np.int64(-1)}, -1),
        ({"charge": -1.0}, -1),
        ({"charge": "-1"}, -1),
        ({"charge": np.array([2])}, 2),
        ({"total_charge": 3}, 3),
        ({"charge": None, "total_charge": 1}, 1),
        ({"charge": 1, "total_charge": 1.0}, 1),
    ],
)
def test_charges(info, charge):
    """C21: all spellings of a charge."""
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]], info=info)
    assert total_charge(atoms) == charge
    assert graph_from_atoms(atoms, 5.0).charge.tolist() == [charge]


@pytest.mark.parametrize("key", ["spin_multiplicity", "multiplicity", "spin"])
def test_spin_multiplicities(key):
    assert spin_multiplicity(Atoms("O", info={key: np.int64(3)})) == 3
    assert spin_multiplicity(Atoms("O")) == 1
    assert graph_from_atoms(Atoms("O", info={key: 2}), 5.0).spin_multiplicity.item() == 2


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"charge": 0.5}, r"info\['charge'\] = 0.5 is not a whole number"),
        ({"charge": "one"}, "not a whole number"),
        ({"charge": [1, 2]}, "not a whole number"),
        ({"charge": float("nan")}, "not a whole number"),
        ({"charge": float("inf")}, "not a whole number"),
        ({"charge": 1, "total_charge": 2}, "info states different values"),
        ({"spin": 1.5}, r"info\['spin'\] = 1.5 is not a whole number"),
        ({"spin": 0}, "at least 1, not 0"),
        ({"multiplicity": -1}, "at least 1, not -1"),
    ],
)
def test_charges_and_spins_that_make_no_sense(info, message):
    with pytest.raises(GeometryError, match=message):
        graph_from_atoms(Atoms("H", info=info), 5.0)


def test_there_and_back():
    first = skewed_pair()
    first.info.update(charge=-2, spin_multiplicity=3)
    second = molecule("CO")
    second.pbc = [False, True, False]
    second.cell[1] = [0, 7, 0]
    graphs = [graph_from_atoms(one, 4.0) for one in (first, second, water())]
    back = atoms_from_graph(batch(graphs))
    assert len(back) == 3
    for one, other in zip((first, second, water()), back, strict=True):
        assert one == other  # positions, numbers, cell and pbc
    assert back[0].info == {"charge": -2, "spin_multiplicity": 3}
    assert back[1].info == {"charge": 0, "spin_multiplicity": 1}
    assert atoms_from_graph(graphs[1]) == [second]
