"""Evaluating models and comparing numbers, for the contracts."""

import numpy as np
import torch
from ase import Atoms
from numpy.typing import ArrayLike, NDArray

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField

Array = NDArray[np.float64]
Values = dict[str, Array]

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4}
ENERGY_TOLERANCES = {torch.float64: 1e-8, torch.float32: 5e-4}  # eV, however large E0


def evaluate(
    model: ForceField, atoms: Atoms, *wanted: str, strategy: str = "auto"
) -> Values:
    """Return predictions for one structure as float64 arrays.

    Args:
        model: Any force field.
        atoms: The structure.
        *wanted: Quantities; ``energy`` and ``forces`` when none are named.
        strategy: How derivatives are taken.

    Returns:
        ``energy`` (n_outputs,), ``forces`` (n_outputs, n_atoms, 3), ``stress``
        (n_outputs, 3, 3), as asked.
    """
    graph = AtomGraph.from_atoms(atoms, model.cutoff).to(str(model.device))
    out = model.predict(graph, wanted or ("energy", "forces"), strategy=strategy)
    values = {name: value.cpu().numpy().astype(np.float64) for name, value in out.items()}
    for name in ("energy", "stress", "virial"):
        if name in values:
            values[name] = values[name][:, 0]
    return values


def assert_close(
    actual: ArrayLike, expected: ArrayLike, tolerance: float, what: str
) -> None:
    """Raise when two arrays differ by more than the tolerance.

    Args:
        actual: Numbers.
        expected: Numbers of the same shape.
        tolerance: Largest difference allowed, relative to the largest expected number
            where that is above one.
        what: The subject of the message.

    Raises:
        AssertionError: Naming the largest difference.

    Example:
        >>> assert_close([1.0, 2.0], [1.0, 2.5], 1e-8, "energies")
        Traceback (most recent call last):
        AssertionError: energies differ by 0.5, more than 2.5e-08
    """
    left, right = np.asarray(actual, float), np.asarray(expected, float)
    if left.shape != right.shape:
        raise AssertionError(f"{what} have the shape {left.shape}, not {right.shape}")
    if left.size == 0:
        return
    allowed = tolerance * max(1.0, float(np.abs(right).max()))
    worst = float(np.abs(left - right).max())
    if not worst <= allowed:  # also catches nan
        raise AssertionError(f"{what} differ by {worst:.3g}, more than {allowed:.3g}")


def assert_same_energy(
    model: ForceField, actual: ArrayLike, expected: ArrayLike, what: str
) -> None:
    """Raise when energies differ by more than an absolute tolerance.

    Large reference energies must not hide differences, so nothing is relative here.

    Args:
        model: Its precision decides: 1e-8 eV in float64, 5e-4 eV in float32.
        actual: In eV.
        expected: In eV, same shape.
        what: The subject of the message.

    Raises:
        AssertionError: Naming the largest difference.
    """
    left, right = np.asarray(actual, float), np.asarray(expected, float)
    if left.shape != right.shape:
        raise AssertionError(f"{what} have the shape {left.shape}, not {right.shape}")
    zero = np.zeros(left.shape)
    assert_close(left - right, zero, ENERGY_TOLERANCES[model.dtype], what)


def tolerance_of(model: ForceField) -> float:
    """Return the tolerance of the model's precision."""
    return TOLERANCES[model.dtype]


def random_rotation(seed: int = 0, reflect: bool = False) -> Array:
    """Return an orthogonal matrix with determinant +1, or -1 to reflect.

    Example:
        >>> round(float(np.linalg.det(random_rotation(reflect=True))), 12)
        -1.0
    """
    rng = np.random.default_rng(seed)
    matrix, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    if (np.linalg.det(matrix) < 0) != reflect:
        matrix[:, 0] *= -1
    return matrix


def transformed(atoms: Atoms, matrix: Array) -> Atoms:
    """Return a copy with positions and cell multiplied by an orthogonal matrix."""
    turned: Atoms = atoms.copy()
    turned.set_cell(atoms.cell.array @ matrix.T)
    turned.positions = atoms.positions @ matrix.T
    return turned


def strained(atoms: Atoms, strain: Array) -> Atoms:
    """Return a copy with positions and cell multiplied by one plus a strain."""
    deformed: Atoms = atoms.copy()
    deformed.set_cell(atoms.cell.array @ (np.eye(3) + strain), scale_atoms=True)
    return deformed
