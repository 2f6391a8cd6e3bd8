"""Checks of what a calculator hands out and when it computes."""

import copy
import json

import numpy as np
from ase import Atoms
from ase.calculators.calculator import PropertyNotImplementedError

from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.measure import assert_close


def assert_energy_is_float(subject: Subject) -> None:
    """The energy is Python's float, so that JSON and databases take it.

    Raises:
        AssertionError: When it is something else.
    """
    for atoms in subject.structures():
        energy = atoms.get_potential_energy()
        # numpy.float64 is a float; arrays and float32 scalars are not
        if not isinstance(energy, float):
            kind = type(energy).__name__
            raise AssertionError(f"the energy is a {kind}, not a float")
        if not np.isfinite(energy):
            raise AssertionError(f"the energy is {energy}")
        json.dumps(energy)


def assert_free_energy(subject: Subject) -> None:
    """A force-consistent energy exists; ASE's filters and databases ask for it.

    Raises:
        AssertionError: When there is none, or it is not finite.
    """
    atoms, _ = subject.structures()
    try:
        energy = atoms.get_potential_energy(force_consistent=True)
    except PropertyNotImplementedError as error:
        raise AssertionError("there is no free_energy") from error
    if not np.isfinite(energy):
        raise AssertionError(f"the free energy is {energy}")


def assert_forces_array(subject: Subject) -> None:
    """Forces are a C-contiguous float64 array of shape (n_atoms, 3), finite.

    Raises:
        AssertionError: Naming what is different.
    """
    for atoms in subject.structures():
        forces = atoms.get_forces(apply_constraint=False)
        if not isinstance(forces, np.ndarray) or forces.dtype != np.float64:
            kind = getattr(forces, "dtype", type(forces).__name__)
            raise AssertionError(f"forces are {kind}, not a float64 array")
        if forces.shape != (len(atoms), 3):
            raise AssertionError(f"forces have the shape {forces.shape}")
        kept = subject.calc.results["forces"]  # ASE's copy is contiguous in any case
        if not (forces.flags.c_contiguous and kept.flags.c_contiguous):
            raise AssertionError("forces are not C-contiguous")
        if not np.isfinite(forces).all():
            raise AssertionError("forces are not finite")


def assert_declared_properties(subject: Subject) -> None:
    """Every declared property of a solid is delivered and finite.

    Raises:
        AssertionError: Naming the property.
    """
    _, solid = subject.structures()
    # ASE's own calculators declare magnetic moments that they do not have
    declared = set(subject.calc.implemented_properties) - {"magmom", "magmoms"}
    for name in sorted(declared):
        try:
            value = subject.calc.get_property(name, solid)
        except PropertyNotImplementedError as error:
            raise AssertionError(f"{name} is declared but not delivered") from error
        if value is None or not np.isfinite(np.asarray(value, float)).all():
            raise AssertionError(f"{name} is {value}")


def assert_answers_are_copies(subject: Subject) -> None:
    """Writing into an answer does not change the next one.

    Raises:
        AssertionError: When it does.
    """
    _, atoms = subject.structures()
    before = np.array(atoms.get_forces(apply_constraint=False))
    atoms.get_forces(apply_constraint=False)[:] = 123.0
    after = atoms.get_forces(apply_constraint=False)
    assert_close(after, before, 0.0, "forces after writing into the last answer")


def assert_structure_unchanged(subject: Subject) -> None:
    """Evaluating changes nothing of the structure, to the last bit.

    Raises:
        AssertionError: Naming what changed.
    """
    for atoms in subject.structures():
        # far outside the cell, where a calculator might wrap in place
        atoms.positions += 7 * atoms.cell.array[0]
        before = atoms.copy()
        atoms.get_potential_energy()
        atoms.get_forces()
        for name, array in before.arrays.items():
            if atoms.arrays[name].tobytes() != array.tobytes():
                raise AssertionError(f"evaluating changes the atoms' {name}")
        if atoms.cell.array.tobytes() != before.cell.array.tobytes():
            raise AssertionError("evaluating changes the cell")
        if set(atoms.info) != set(before.info) or set(atoms.arrays) != set(before.arrays):
            raise AssertionError("evaluating adds to info or arrays")


def assert_no_stale_results(subject: Subject) -> None:
    """Moved atoms get new results, in place or in another ``Atoms``, and old ones back.

    Raises:
        AssertionError: When an old result is given for a new structure.
    """
    for atoms in subject.structures():
        first, forces = atoms.get_potential_energy(), atoms.get_forces()
        start = atoms.positions.copy()
        # along the force, so that the energy has to change
        worst = int(np.linalg.norm(forces, axis=1).argmax())
        force = forces[worst]
        if np.linalg.norm(force) < 1e-8:
            raise AssertionError("forces are zero; give a structure that has some")
        atoms.positions[worst] += 0.05 * force / np.linalg.norm(force)
        second, moved_forces = atoms.get_potential_energy(), atoms.get_forces()
        if second == first or np.array_equal(moved_forces, forces):
            raise AssertionError("results do not change when an atom moves")
        atoms.positions[:] = start
        allowed = 1e-6 * max(1.0, abs(first))
        if abs(atoms.get_potential_energy() - first) > allowed:
            raise AssertionError("the energy is another one after moving there and back")
        if subject.has_stress and atoms.pbc.all():
            _assert_stress_follows(atoms)


def _assert_stress_follows(atoms: Atoms) -> None:
    before = atoms.get_stress()
    atoms.set_cell(atoms.cell.array * 1.01, scale_atoms=True)
    if np.array_equal(before, atoms.get_stress()):
        raise AssertionError("the stress does not change when the cell does")


def assert_sizes_follow(subject: Subject) -> None:
    """One calculator serves structures of different sizes in turns.

    Raises:
        AssertionError: When an answer is not that of the first time.
    """
    small = subject.molecule[:2]
    answers = [
        (a, subject.energy(a), subject.forces(a)) for a in (subject.molecule, small)
    ]
    for atoms, energy, forces in [*answers, answers[0]]:
        what = f"with {len(atoms)} atoms, after another size"
        assert_close(subject.energy(atoms), energy, 1e-6, f"energies {what}")
        assert_close(subject.forces(atoms), forces, 1e-6, f"forces {what}")
        for name, value in subject.calc.results.items():
            if name in ("forces", "energies") and len(value) != len(atoms):
                raise AssertionError(f"results keep {name} of {len(value)} atoms")


def assert_direct_call(subject: Subject) -> None:
    """``calculate(atoms)`` and ``get_potential_energy(atoms)`` answer for their atoms.

    Raises:
        AssertionError: When they answer for other ones.
    """
    molecule, calc = subject.molecule, subject.calc
    stretched = molecule.copy()
    stretched.positions *= 1.02
    expected = [subject.energy(atoms) for atoms in (molecule, stretched)]
    if expected[0] == expected[1]:
        raise AssertionError("the energy does not change when the molecule is stretched")
    for atoms, energy in zip((molecule, stretched), expected, strict=True):
        calc.calculate(atoms, ["energy", "forces"], ["positions"])
        assert_close(calc.results["energy"], energy, 1e-6, "energies by calculate(atoms)")
        asked = calc.get_potential_energy(atoms)
        assert_close(asked, energy, 1e-6, "energies by get_potential_energy(atoms)")


def assert_no_stress_of_molecules(subject: Subject) -> None:
    """The stress of an open structure without a cell is refused as ASE wants it.

    Raises:
        AssertionError: When there is an answer, or another error.
    """
    atoms = subject.molecule.copy()
    atoms.set_cell(None)
    atoms.pbc = False
    atoms.calc = subject.calc
    try:
        stress = atoms.get_stress()
    except PropertyNotImplementedError:
        return
    except Exception as error:
        kind = type(error).__name__
        raise AssertionError(
            f"the stress of a molecule raises {kind}, not PropertyNotImplementedError"
        ) from error
    raise AssertionError(f"a molecule has the stress {stress}")


def assert_copies_work(subject: Subject) -> None:
    """``copy.deepcopy`` of the calculator gives the same answers.

    Raises:
        AssertionError: When it does not.
    """
    energy = subject.energy(subject.molecule)
    atoms = subject.molecule.copy()
    atoms.calc = copy.deepcopy(subject.calc)
    assert_close(atoms.get_potential_energy(), energy, 1e-6, "energies of a deepcopy")
