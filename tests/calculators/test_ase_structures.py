"""Structures that have broken calculators before."""

import warnings

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.calculator import (
    PropertyNotImplementedError,
)

from gnnforce.calculators.ase import Calculator
from gnnforce.errors import (
    GeometryError,
    UnknownElementError,
    UserError,
)
from gnnforce.testing import systems

ELEMENTS = [1, 6, 7, 8, 14, 18, 29]


def fresh(model, atoms, head=None):
    return Calculator(model, head=head).get_potential_energy(atoms.copy())


def test_lone_atom_in_three_boxes(calc):  # C01
    box = 100 * np.eye(3)
    atoms = [
        Atoms("H"),
        Atoms("H", cell=box),
        Atoms("H", cell=box, pbc=True),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        energies = [calc.get_potential_energy(a) for a in atoms]
        forces = [calc.get_forces(a) for a in atoms]
        stress = calc.get_stress(atoms[2])
    assert energies == [-13.0, -13.0, -13.0]
    for force in forces:
        assert force.shape == (1, 3)
        assert not force.any()
    assert not stress.any()


def test_supercells_of_cells_smaller_than_the_cutoff(model):  # C06
    calc = Calculator(model)
    skewed = Atoms("Si", cell=[[3, 0, 0], [2.9, 1, 0], [0, 0, 8]], pbc=True)
    chain = Atoms("H", cell=[2, 10, 10], pbc=[True, False, False])
    for atoms, times in ((systems.copper(), 2), (skewed, 2), (chain, (2, 1, 1))):
        n = 2 if times == (2, 1, 1) else 8
        big = atoms.repeat(times)
        assert calc.get_potential_energy(big) == pytest.approx(
            n * fresh(model, atoms), abs=1e-7
        )
        calc.get_stress(atoms)
        assert abs(calc.get_forces(atoms)).max() < 1e-10  # by symmetry
        np.testing.assert_allclose(
            calc.get_stress(big) * n,
            calc.get_stress(atoms) * n,
            atol=1e-8,
        )


def test_wrapped_and_unwrapped_atoms(calc):  # C07
    cell = 4 * np.eye(3)
    shifts = ([0, 0, 0], [28.0, 0, 0], [-400.0, 800, 12])
    energies, forces, stresses = [], [], []
    for shift in shifts:
        atoms = Atoms("Ar2", [[0.1, 0, 0], [3.9, 0, 0]], cell=cell, pbc=True)
        atoms.positions[0] += shift
        before = atoms.positions.tobytes()
        energies.append(calc.get_potential_energy(atoms))
        forces.append(calc.get_forces(atoms))
        stresses.append(calc.get_stress(atoms))
        assert atoms.positions.tobytes() == before
    assert np.ptp(energies) < 1e-8
    assert abs(forces[0]).max() > 1e-3
    for other in (1, 2):
        np.testing.assert_allclose(forces[other], forces[0], atol=1e-8)
        np.testing.assert_allclose(stresses[other], stresses[0], atol=1e-8)


def test_cell_of_an_open_structure_is_not_read(calc, model, counting):  # C09
    cells = [None, np.eye(3), 50 * np.eye(3), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]]
    energies = []
    for cell in cells:
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.5]], cell=cell)
        energies.append(fresh(model, atoms))
        with pytest.raises(PropertyNotImplementedError):
            calc.get_stress(atoms)
    assert np.ptp(energies) < 1e-10
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.5]])
    calc.get_forces(atoms)
    with counting(model) as passes:
        atoms.set_cell([9, 9, 9])
        calc.get_forces(atoms)
    assert len(passes) == 0


def test_origin_does_not_matter(model):  # C10
    atoms, far, further = (systems.water() for _ in range(3))
    far.positions += [5000, 0, 0]
    further.positions += [0, -1e6, 0]
    calc = Calculator(model)
    assert calc.get_potential_energy(far) == pytest.approx(
        calc.get_potential_energy(atoms), abs=1e-8
    )
    assert calc.get_potential_energy(further) == pytest.approx(
        calc.get_potential_energy(atoms), abs=1e-5
    )
    single = Calculator(model, dtype="float32")
    assert single.get_potential_energy(far) == pytest.approx(
        single.get_potential_energy(atoms), abs=1e-4
    )
    np.testing.assert_allclose(
        single.get_forces(far), single.get_forces(atoms), atol=1e-4
    )


def test_more_neighbors_than_usual_limits(calc):  # C11
    atoms = systems.argon_grid()
    energy = calc.get_potential_energy(atoms)
    turned = atoms[np.random.default_rng(0).permutation(len(atoms))]
    turned.rotate(37.0, (1, 2, 3))
    assert calc.get_potential_energy(turned) == pytest.approx(energy, abs=1e-7)
    center = 62
    step = 3e-5
    forces = calc.get_forces(atoms)
    assert abs(forces[0]).max() > 1e-6  # a corner; the center has none by symmetry
    for index in (center, 0):
        slopes = []
        for h in (step, -step):
            moved = atoms.copy()
            moved.positions[index, 0] += h
            slopes.append(calc.get_potential_energy(moved))
        slope = (slopes[0] - slopes[1]) / (2 * step)
        assert -slope == pytest.approx(forces[index, 0], abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        Atoms("He2", [[0, 0, 0], [0, 0, 3]]),
        Atoms("OHHX", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0], [3, 3, 3]]),
        Atoms("HOg", [[0, 0, 0], [0, 0, 2]]),
    ],
)
def test_unknown_element_is_named_and_leaves_nothing(calc, wrong):  # C14, C16
    water = systems.water()
    before = calc.get_potential_energy(water)
    symbol = {2: "He", 0: "X", 118: "Og"}[
        next(z for z in wrong.numbers if z not in ELEMENTS)
    ]
    with pytest.raises(UnknownElementError, match=rf"\b{symbol}\b"):
        calc.get_potential_energy(wrong)
    assert calc.results == {}
    assert calc.atoms is None
    assert calc.get_potential_energy(water) == before


def test_bad_geometry_is_refused_by_name(calc):
    twins = Atoms("H2", [[0, 0, 0], [0, 0, 1e-6]])
    with pytest.raises(GeometryError, match="atoms 0 and 1"):
        calc.get_forces(twins)
    lost = Atoms("H2", [[0, 0, 0], [0, 0, np.nan]])
    with pytest.raises(GeometryError, match="atom 1"):
        calc.get_forces(lost)
    with pytest.raises(UserError, match="no structure"):
        Calculator(calc.model).get_property("energy")


@pytest.mark.parametrize("charge", [-1, np.int64(-1), -1.0])
def test_charge_warns_once(model, charge):
    calc = Calculator(model)
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])
    neutral = calc.get_potential_energy(atoms)
    atoms.info["charge"] = charge
    with pytest.warns(UserWarning, match="charge -1"):
        assert calc.get_potential_energy(atoms) == neutral
    atoms.positions[0, 0] += 0.01
    calc.get_potential_energy(atoms)  # a second warning would be an error


def test_fractional_charge_is_refused(calc):
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])
    atoms.info["charge"] = 0.5
    with pytest.raises(GeometryError, match=r"0\.5"):
        calc.get_potential_energy(atoms)
    assert calc.results == {}
