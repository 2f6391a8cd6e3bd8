"""The labels of one head in one frame: found, converted to eV and Angstrom, checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from gnnforce.datasets.choices import Keys
from gnnforce.datasets.keys import KeyChoice, LabelSpec, find_label
from gnnforce.datasets.units import (
    energy_factor,
    is_energy_unit,
    is_length_unit,
    length_factor,
)
from gnnforce.datasets.values import Floats, as_floats, as_matrices, split_states
from gnnforce.errors import DataError

AGREEMENT = 1e-3  # of the largest component, between a stress and a virial


@dataclass
class Labels:
    """Labels of one head in one frame; what is None is not known.

    Attributes:
        energy: Total energy in eV.
        forces: In eV/Angstrom, shape ``(n_atoms, 3)``; 0 where masked.
        forces_mask: Which atoms have a force, shape ``(n_atoms,)``.
        stress: In eV/Angstrom^3, symmetric, shape ``(3, 3)``.
    """

    energy: float | None = None
    forces: Floats | None = None
    forces_mask: NDArray[np.bool_] | None = None
    stress: Floats | None = None

    def has(self, quantity: str) -> bool:
        """Tell whether a quantity is there."""
        return getattr(self, quantity) is not None


@dataclass(frozen=True)
class Rules:
    """What is refused.

    Attributes:
        forces_limit: Largest force in eV/Angstrom.
        allow_nan: Quantities in which nan means "not known".
    """

    forces_limit: float
    allow_nan: frozenset[str]


def read_labels(atoms: Atoms, spec: LabelSpec, keys: Keys, rules: Rules) -> Labels:
    """Read the labels of one head in one frame.

    Args:
        atoms: The frame, which is not changed.
        spec: Head and units.
        keys: The key of every head and quantity.
        rules: What is refused.

    Returns:
        The labels.

    Raises:
        DataError: Says which label cannot be used and why, without the frame number.
    """
    found: dict[str, Floats] = {}
    for quantity in ("energy", "forces", "stress", "virial"):
        choice = keys.get((spec.head, quantity))
        if choice is None:
            continue
        try:
            raw = find_label(atoms, choice)
            if raw is not None:
                value = _state(raw, choice, quantity, len(atoms))
                _check_header(atoms, spec, quantity)
                found[quantity] = value * spec.factor(quantity)
                _check_finite(found[quantity], quantity in rules.allow_nan)
        except DataError as error:
            what = f"{quantity} of head {spec.head!r} ({choice.text!r})"
            raise DataError(f"{what} {error}") from error
    energy = found.get("energy")
    forces, mask = _forces(found.get("forces"), spec, rules)
    return Labels(
        energy=None if energy is None or np.isnan(energy) else float(energy),
        forces=forces,
        forces_mask=mask,
        stress=_stress(atoms, found.get("stress"), found.get("virial"), spec),
    )


def _state(raw: Any, choice: KeyChoice, quantity: str, n_atoms: int) -> Floats:  # noqa: ANN401
    """Return the numbers of the chosen state."""
    values = as_floats(raw)
    states = 1 if choice.state is None else choice.states
    if quantity in ("stress", "virial"):
        found = as_matrices(values, states)
    else:
        found = split_states(values, states, (n_atoms, 3) if quantity == "forces" else ())
    state = choice.state or 0
    if state >= len(found):
        raise DataError(f"has {len(found)} states, counted from 0; there is no {state}")
    return found[state]


def _check_finite(values: Floats, allow_nan: bool) -> None:
    if np.isinf(values).any():
        raise DataError("is infinite")
    if np.isnan(values).any() and not allow_nan:
        raise DataError("is nan; say in allow_nan if that means 'not known'")


def _forces(
    forces: Floats | None, spec: LabelSpec, rules: Rules
) -> tuple[Floats | None, NDArray[np.bool_] | None]:
    if forces is None:
        return None, None
    mask = np.asarray(np.isfinite(forces).all(axis=1))
    if not mask.any():
        return None, None
    forces = np.where(mask[:, None], forces, 0.0)
    largest = float(np.sqrt((forces**2).sum(axis=1)).max())
    if largest > rules.forces_limit:
        atom = int((forces**2).sum(axis=1).argmax())
        raise DataError(
            f"forces of head {spec.head!r}: {largest:.4g} eV/Ang on atom {atom} is beyond "
            f"the limit of {rules.forces_limit:g}; check the units, raise forces_limit, or "
            "leave such frames out with on_bad: drop"
        )
    return forces, mask


def _stress(
    atoms: Atoms, stress: Floats | None, virial: Floats | None, spec: LabelSpec
) -> Floats | None:
    r"""Return the stress, from :math:`\sigma = -W / V` where the virial is given."""
    given = [v for v in (stress, virial) if v is not None and not np.isnan(v).any()]
    if not given:
        return None
    volume = abs(float(np.linalg.det(atoms.cell.array)))
    if volume == 0 or not atoms.pbc.any():
        if all(not value.any() for value in given):
            return None  # zeros that some programs write for molecules
        raise DataError(
            f"head {spec.head!r} has a stress, but the frame has no "
            f"{'cell' if volume == 0 else 'periodic direction (pbc)'}, so there is none; "
            "give the cell and pbc, or remove the stress"
        )
    if virial is None or np.isnan(virial).any():
        return stress
    from_virial = -virial / volume
    if stress is None or np.isnan(stress).any():
        return from_virial
    difference = np.abs(stress - from_virial).max()
    if difference > AGREEMENT * np.abs(stress).max():
        raise DataError(
            f"stress and virial of head {spec.head!r} contradict each other: "
            f"-virial/volume differs from the stress by {difference:.3g} eV/Ang^3 (virial "
            "= -volume * stress); name the key of the right one"
        )
    return stress


def _check_header(atoms: Atoms, spec: LabelSpec, quantity: str) -> None:
    """Refuse units that the frame itself contradicts."""
    name = {"energy": "energy", "forces": "force"}.get(quantity)
    for key in (f"{name}-unit", f"{name}_unit"):
        word = atoms.info.get(key)
        if not isinstance(word, str):
            continue
        energy, _, length = word.rpartition("/") if name == "force" else (word, "", "Ang")
        if not (is_energy_unit(energy) and is_length_unit(length)):
            raise DataError(f"is in {word!r} ({key}), a unit that is not known here")
        factor = energy_factor(energy) / (length_factor(length) if name == "force" else 1)
        if not np.isclose(factor, spec.factor(quantity), rtol=1e-4):
            remedy = f"energy_unit to {energy!r}"
            if name == "force":
                remedy += f" and length_unit to {length!r}"
            raise DataError(f"is in {word!r} according to {key!r}; set {remedy}")
