"""From the predictions of a model to the ``results`` of an ASE calculator."""

from collections.abc import Sequence

import numpy as np
from ase.calculators.calculator import CalculationFailed
from numpy.typing import NDArray

from gnnforce.models.predictions import HeadPredictions

Results = dict[str, float | NDArray[np.float64]]

COMMITTEE_PROPERTIES = (
    "energy_std",
    "forces_std",
    "stress_std",
    "energy_members",
    "forces_members",
    "stress_members",
)
_VOIGT = ([0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1])  # xx yy zz yz xz xy


def ase_results(head: HeadPredictions, wanted: Sequence[str], members: int) -> Results:
    """Turn the predictions of one head for one structure into ASE's results.

    Every number is float64 and its own memory. For a committee the plain names hold
    the mean over members, and ``*_std`` the standard deviation with ``ddof=1``.

    Args:
        head: Predictions of the head, of a single structure.
        wanted: The quantities that were predicted.
        members: Members of the head.

    Returns:
        ``energy``, ``free_energy`` (eV), ``forces`` ``(n_atoms, 3)`` and, as asked,
        ``energies`` ``(n_atoms,)`` and ``stress`` ``(6,)`` (eV/Angstrom^3); for a
        committee also the keys of ``COMMITTEE_PROPERTIES``, whose members come first.

    Raises:
        CalculationFailed: When a value is not finite.
    """
    results: Results = {}
    for name in wanted:
        values = _members(head, name)  # (n_members, ...)
        if not np.isfinite(values).all():
            raise CalculationFailed(
                f"the model gives {name} that are not finite numbers for this "
                "structure; it lies far outside what the model knows"
            )
        results[name] = _plain(values.mean(axis=0))
        if members > 1 and name != "energies":
            results[f"{name}_std"] = _plain(values.std(axis=0, ddof=1))
            results[f"{name}_members"] = values
    results["free_energy"] = results["energy"]
    return results


def voigt(tensors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return symmetric matrices in ASE's order xx, yy, zz, yz, xz, xy.

    Args:
        tensors: Shape ``(..., 3, 3)``.

    Returns:
        Shape ``(..., 6)``.

    Example:
        >>> voigt(np.array([[1.0, 6, 5], [6, 2, 4], [5, 4, 3]])).tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    return np.ascontiguousarray(tensors[..., _VOIGT[0], _VOIGT[1]])


def _members(head: HeadPredictions, name: str) -> NDArray[np.float64]:
    values = head.members(name).detach().cpu().numpy().astype(np.float64)
    if name == "energy":
        return np.ascontiguousarray(values[:, 0])  # (n_members,)
    if name == "stress":
        return voigt(values[:, 0])  # (n_members, 6)
    return np.ascontiguousarray(values)  # (n_members, n_atoms, ...)


def _plain(value: NDArray[np.float64]) -> float | NDArray[np.float64]:
    return float(value) if np.ndim(value) == 0 else np.ascontiguousarray(value)
