import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, molecule
from ase.constraints import FixAtoms

from gnnforce.simulation.velocities import set_velocities


def rng(seed=0):
    return np.random.default_rng(seed)


def test_distribution():
    atoms = bulk("Cu", cubic=True) * 6
    atoms.numbers[::2] = 6
    set_velocities(atoms, 400.0, rng())
    for number in (6, 29):
        part = atoms[atoms.numbers == number]
        assert part.get_temperature() == pytest.approx(400, rel=0.1)


def test_molecule_does_not_drift_or_turn():
    atoms = molecule("CH3CH2OH")
    set_velocities(atoms, 300.0, rng(1))
    assert abs(atoms.get_momenta().sum(axis=0)).max() < 1e-10
    assert abs(atoms.get_angular_momentum()).max() < 1e-10
    assert atoms.get_kinetic_energy() > 0


def test_crystal_keeps_its_angular_momentum():
    atoms = bulk("Cu", cubic=True) * 2
    set_velocities(atoms, 300.0, rng(1))
    assert abs(atoms.get_momenta().sum(axis=0)).max() < 1e-10
    assert abs(atoms.get_angular_momentum()).max() > 1e-6


@pytest.mark.parametrize("name", ["H2", "CO2"])
def test_linear_molecules_are_finite(name):
    atoms = molecule(name)
    set_velocities(atoms, 300.0, rng(2))
    assert np.isfinite(atoms.get_momenta()).all()
    assert atoms.get_kinetic_energy() > 0
    assert abs(atoms.get_angular_momentum()).max() < 1e-10


def test_lone_atom_moves():
    atoms = Atoms("Ar")
    set_velocities(atoms, 300.0, rng(3))
    assert atoms.get_kinetic_energy() > 0


def test_existing_momenta_stay_and_zero_ones_do_not():
    atoms = molecule("H2O")
    atoms.set_momenta(np.zeros((3, 3)))
    set_velocities(atoms, 300.0, rng())
    drawn = atoms.get_momenta()
    assert drawn.any()
    set_velocities(atoms, 900.0, rng(5))
    np.testing.assert_array_equal(atoms.get_momenta(), drawn)


def test_seed_and_global_generator():
    before = str(np.random.get_state())  # noqa: NPY002  (it must not move)
    first, second = molecule("H2O"), molecule("H2O")
    set_velocities(first, 300.0, rng(4))
    set_velocities(second, 300.0, rng(4))
    np.testing.assert_array_equal(first.get_momenta(), second.get_momenta())
    assert str(np.random.get_state()) == before  # noqa: NPY002


def test_fixed_atoms_stay():
    atoms = molecule("H2O")
    atoms.set_constraint(FixAtoms([0]))
    set_velocities(atoms, 300.0, rng())
    assert not atoms.get_momenta()[0].any()
    assert atoms.get_momenta()[1].any()
