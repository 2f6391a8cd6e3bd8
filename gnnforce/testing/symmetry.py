"""Contracts of symmetry: what must not depend on how a structure is written down."""

import numpy as np
from ase import Atoms

from gnnforce.models.force_field import ForceField
from gnnforce.testing.measure import (
    Array,
    assert_close,
    assert_same_energy,
    evaluate,
    random_rotation,
    tolerance_of,
    transformed,
)
from gnnforce.testing.systems import cluster, crystal


def assert_rotation_equivariant(model: ForceField) -> None:
    r"""Energies stay, forces and stress turn: :math:`F' = F R^T`, :math:`S' = R S R^T`.

    Args:
        model: Any force field.

    Raises:
        AssertionError: When it does not hold.
    """
    _assert_equivariant(model, random_rotation(seed=1))


def assert_reflection_equivariant(model: ForceField) -> None:
    """The same for a mirror image.

    Raises:
        AssertionError: When it does not hold.
    """
    _assert_equivariant(model, random_rotation(seed=2, reflect=True))


def assert_translation_invariant(model: ForceField) -> None:
    """Results do not depend on the origin, 5000 Angstrom away included.

    Raises:
        AssertionError: When it does not hold.
    """
    for atoms in (cluster(model.elements), crystal(model.elements)):
        for shift in ([0.3, -4.0, 17.0], [5000.0, 0.0, 0.0]):
            moved = atoms.copy()
            moved.positions += shift
            _assert_same(model, moved, atoms, f"results after a shift by {shift}")


def assert_permutation_equivariant(model: ForceField) -> None:
    """The order of atoms only orders the forces.

    Raises:
        AssertionError: When it does not hold.
    """
    for atoms in (cluster(model.elements, 7), crystal(model.elements, 5)):
        order = np.random.default_rng(3).permutation(len(atoms))
        before, after = evaluate(model, atoms), evaluate(model, atoms[order])
        tolerance = tolerance_of(model)
        assert_same_energy(model, after["energy"], before["energy"], "permuted energies")
        expected = before["forces"][:, order]
        assert_close(after["forces"], expected, tolerance, "permuted forces")


def assert_wrapping_invariant(model: ForceField) -> None:
    """Atoms many cells away give the results of wrapped ones.

    Raises:
        AssertionError: When it does not hold.
    """
    atoms = crystal(model.elements)
    moved = atoms.copy()
    jumps = np.random.default_rng(4).integers(-100, 100, (len(atoms), 3))
    moved.positions += jumps @ atoms.cell.array
    _assert_same(model, moved, atoms, "results of unwrapped atoms")


def assert_open_cell_ignored(model: ForceField) -> None:
    """Without periodic directions the cell has no influence, left-handed or tiny.

    Raises:
        AssertionError: When it does not hold.
    """
    atoms = cluster(model.elements)
    for cell in (np.eye(3), 50 * np.eye(3), np.eye(3)[[1, 0, 2]]):
        boxed = atoms.copy()
        boxed.set_cell(cell)
        _assert_same(model, boxed, atoms, f"results in the open cell {cell.tolist()}")


def _assert_equivariant(model: ForceField, matrix: Array) -> None:
    tolerance = tolerance_of(model)
    for atoms in (cluster(model.elements), crystal(model.elements)):
        turned = transformed(atoms, matrix)
        wanted = ["energy", "forces", *["stress"] * bool(atoms.pbc.all())]
        before, after = (evaluate(model, each, *wanted) for each in (atoms, turned))
        assert_same_energy(model, after["energy"], before["energy"], "turned energies")
        forces = before["forces"] @ matrix.T
        assert_close(after["forces"], forces, tolerance, "turned forces")
        if "stress" in wanted:
            stress = matrix @ before["stress"] @ matrix.T
            assert_close(after["stress"], stress, tolerance, "turned stresses")


def _assert_same(model: ForceField, actual: Atoms, expected: Atoms, what: str) -> None:
    wanted = ["energy", "forces", *["stress"] * bool(expected.pbc.all())]
    found = evaluate(model, actual, *wanted)
    right = evaluate(model, expected, *wanted)
    energies = right.pop("energy")
    assert_same_energy(model, found["energy"], energies, f"{what}: energies")
    for name, value in right.items():
        assert_close(found[name], value, tolerance_of(model), f"{what}: {name}")
