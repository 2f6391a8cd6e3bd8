"""Checks of the numbers a calculator gives: derivatives, units, signs, symmetry."""

import numpy as np
from ase import Atoms, units

from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.measure import (
    assert_close,
    random_rotation,
    strained,
    transformed,
)

_STEP = 1e-3
_VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))


def assert_forces_are_gradients(subject: Subject) -> None:
    r"""Forces equal :math:`-\partial E/\partial R` by central differences.

    Raises:
        AssertionError: Naming the atom and the axis.
    """
    for atoms in (subject.molecule, subject.solid):
        forces = subject.forces(atoms)
        scale = max(1.0, float(np.abs(forces).max()))
        for atom, axis in np.ndindex(min(len(atoms), 4), 3):
            ahead, behind = (_shifted(atoms, atom, axis, h) for h in (_STEP, -_STEP))
            slope = (subject.energy(ahead) - subject.energy(behind)) / (2 * _STEP)
            what = f"force and -dE/dx of atom {atom}, axis {axis}:"
            allowed = subject.tolerance * scale / max(1.0, abs(slope))
            assert_close(forces[atom, axis], -slope, allowed, what)


def assert_stress_is_gradient(subject: Subject) -> None:
    r"""Stress equals :math:`\partial E/\partial\epsilon / V` in eV/A^3, ASE's order.

    Raises:
        AssertionError: With a guess at the mistake: unit, sign or order.
    """
    if not subject.has_stress:
        return
    atoms = subject.attached(subject.solid)
    stress = np.asarray(atoms.get_stress(), float)
    raw = np.asarray(subject.calc.get_property("stress", atoms))
    if raw.shape != (6,):
        raise AssertionError(f"the stress has the shape {raw.shape}, not (6,)")
    slopes = []
    for i, j in _VOIGT:
        direction = np.zeros((3, 3))
        direction[i, j] += 0.5
        direction[j, i] += 0.5
        ahead, behind = (
            strained(subject.solid, h * direction) for h in (_STEP / 10, -_STEP / 10)
        )
        slopes.append((subject.energy(ahead) - subject.energy(behind)) / (_STEP / 5))
    expected = np.array(slopes) / subject.solid.get_volume()
    allowed = subject.tolerance * max(1.0, float(np.abs(expected).max()))
    if not np.abs(stress - expected).max() <= allowed:
        raise AssertionError(
            f"the stress is {stress.round(6).tolist()}, but dE/dstrain / V is "
            f"{expected.round(6).tolist()} eV/A^3{_guess(stress, expected, allowed)}"
        )


def assert_energies_sum(subject: Subject) -> None:
    """Energies of atoms, where declared, sum to the energy.

    Raises:
        AssertionError: When they do not.
    """
    if "energies" not in subject.calc.implemented_properties:
        return
    for atoms in subject.structures():
        energies = np.asarray(atoms.get_potential_energies(), float)
        if energies.shape != (len(atoms),):
            raise AssertionError(f"energies have the shape {energies.shape}")
        total = atoms.get_potential_energy()
        assert_close(energies.sum(), total, subject.tolerance, "sum of energies:")


def assert_no_net_force(subject: Subject) -> None:
    """Forces sum to zero.

    Raises:
        AssertionError: When they do not.
    """
    for atoms in (subject.molecule, subject.solid):
        forces = subject.forces(atoms)
        allowed = subject.tolerance * max(1.0, float(np.abs(forces).max()))
        assert_close(forces.sum(axis=0), np.zeros(3), allowed, "sum of forces and zero")


def assert_rotation(subject: Subject) -> None:
    """Energies stay and forces turn under a rotation with reflection.

    Raises:
        AssertionError: When they do not.
    """
    matrix = random_rotation(seed=5, reflect=True)
    for atoms in (subject.molecule, subject.solid):
        turned = transformed(atoms, matrix)
        _assert_energy(subject, turned, subject.energy(atoms), "turned energies")
        expected = subject.forces(atoms) @ matrix.T
        forces = subject.forces(turned)
        assert_close(forces, expected, subject.tolerance, "turned forces")


def assert_permutation(subject: Subject) -> None:
    """The order of the atoms only orders the forces.

    Raises:
        AssertionError: When it changes more.
    """
    order = np.arange(len(subject.molecule))[::-1]
    swapped = subject.molecule[order]
    _assert_energy(subject, swapped, subject.energy(subject.molecule), "energies")
    expected = subject.forces(subject.molecule)[order]
    forces = subject.forces(swapped)
    assert_close(forces, expected, subject.tolerance, "permuted forces")


def assert_translation(subject: Subject) -> None:
    """Neither the origin nor wrapping into the cell matters.

    Raises:
        AssertionError: When it does.
    """
    moved = subject.molecule.copy()
    moved.positions += [31.0, -7.0, 2.5]
    _assert_energy(subject, moved, subject.energy(subject.molecule), "moved energies")
    far = subject.solid.copy()
    far.positions[0] += np.array([3, -5, 2]) @ far.cell.array
    _assert_energy(subject, far, subject.energy(subject.solid), "unwrapped energies")
    forces = subject.forces(far)
    expected = subject.forces(subject.solid)
    assert_close(forces, expected, subject.tolerance, "unwrapped forces")


def assert_supercell(subject: Subject) -> None:
    """Two cells have twice the energy of one.

    Raises:
        AssertionError: When they have not.
    """
    if subject.extensive:
        energy = 2 * subject.energy(subject.solid)
        double = subject.solid.repeat((1, 1, 2))
        _assert_energy(subject, double, energy, "energies of two cells")


def _assert_energy(subject: Subject, atoms: Atoms, expected: float, what: str) -> None:
    found = subject.energy(atoms)
    if not abs(found - expected) <= subject.tolerance:
        raise AssertionError(f"{what} differ: {found} and {expected} eV")


def _shifted(atoms: Atoms, atom: int, axis: int, step: float) -> Atoms:
    shifted: Atoms = atoms.copy()
    shifted.positions[atom, axis] += step
    return shifted


def _guess(stress: np.ndarray, expected: np.ndarray, allowed: float) -> str:
    candidates = {
        "the sign is opposite": -stress,
        "it is in GPa": stress * units.GPa,
        "it is in GPa with the opposite sign": -stress * units.GPa,
        "it is in kbar": stress * units.GPa / 10,
        "the order is xx yy zz xy yz xz": stress[[0, 1, 2, 4, 5, 3]],
        "the order is xx yy zz xy xz yz": stress[[0, 1, 2, 5, 4, 3]],
    }
    for guess, candidate in candidates.items():
        if np.abs(candidate - expected).max() <= 10 * allowed:
            return f"; it looks as if {guess}"
    return ""
