import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule

from gnnforce.errors import GeometryError
from gnnforce.graph.convert import (
    atoms_from_graph,
    graph_from_atoms,
    spin_multiplicity,
    total_charge,
)
from gnnforce.graph.views import edge_vectors
from gnnforce.testing.systems import five_elements

OH = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])


@pytest.mark.parametrize("value", [-1, np.int64(-1), -1.0, np.array(-1), "-1"])
@pytest.mark.parametrize("key", ["charge", "total_charge"])
def test_spellings_of_a_charge(key, value):  # C21
    atoms = OH.copy()
    atoms.info[key] = value
    assert graph_from_atoms(atoms, 5.0).charge.tolist() == [-1.0]


@pytest.mark.parametrize("key", ["spin", "multiplicity", "spin_multiplicity"])
def test_spellings_of_a_spin(key):
    atoms = OH.copy()
    assert spin_multiplicity(atoms) == 1
    atoms.info[key] = 2
    assert graph_from_atoms(atoms, 5.0).spin_multiplicity.tolist() == [2.0]


@pytest.mark.parametrize("value", [0.5, "one", np.nan, [1, 2]])
def test_no_whole_number(value):
    atoms = OH.copy()
    atoms.info["charge"] = value
    with pytest.raises(GeometryError, match=r"info\['charge'\].*whole number"):
        total_charge(atoms)


def test_contradiction_and_impossible_spin():
    atoms = OH.copy()
    atoms.info.update(charge=0, total_charge=1)
    with pytest.raises(GeometryError, match="different values"):
        total_charge(atoms)
    atoms.info = {"spin": 0}
    with pytest.raises(GeometryError, match="at least 1"):
        spin_multiplicity(atoms)


def test_float64_graph_holds_the_positions_as_given():
    atoms = five_elements(periodic=True)
    atoms.positions += 7
    before = atoms.positions.tobytes()
    graph = graph_from_atoms(atoms, 5.0)
    assert graph.positions.numpy().tobytes() == before == atoms.positions.tobytes()
    graph.positions += 1  # the graph has memory of its own
    assert atoms.positions.tobytes() == before


@pytest.mark.parametrize("periodic", [False, True])
def test_float32_graph_is_as_good_far_from_the_origin(periodic):  # C07, C10
    atoms = five_elements(periodic)
    near = edge_vectors(graph_from_atoms(atoms, 3.0))
    atoms.positions += [40_000 * 4.0, -2_000 * 4.2, 0]
    far = graph_from_atoms(atoms, 3.0, torch.float32)
    assert far.positions.dtype == far.cell.dtype == far.edge_shifts.dtype == torch.float32
    got, expected = edge_vectors(far).double(), near
    order = [np.lexsort(x.numpy().round(3).T) for x in (got, expected)]
    torch.testing.assert_close(got[order[0]], expected[order[1]], atol=2e-6, rtol=0)


def test_back_to_atoms():
    atoms = five_elements(periodic=True)
    atoms.info["charge"] = 2
    (back,) = atoms_from_graph(graph_from_atoms(atoms, 5.0))
    assert back == atoms
    assert back.info == {"charge": 2, "spin_multiplicity": 1}


def test_strided_and_read_only_arrays():  # C32
    atoms = molecule("H2O")
    reversed_atoms = Atoms(numbers=atoms.numbers[::-1], positions=atoms.positions[::-1])
    reversed_atoms.arrays["positions"] = atoms.positions[::-1]
    reversed_atoms.arrays["positions"].flags.writeable = False
    assert graph_from_atoms(reversed_atoms, 5.0).n_edges == 6
