"""Where labels are: keys per head and quantity, in info, arrays or the calculator."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.outputs import all_outputs

from gnnforce.datasets.units import energy_factor, length_factor, pressure_factor
from gnnforce.datasets.values import as_floats, as_matrices
from gnnforce.errors import DataError, did_you_mean

LABELS = ("energy", "forces", "stress", "virial")
DEFAULT_KEYS: dict[str, tuple[str, ...]] = {
    "energy": (
        "energy",
        "REF_energy",
        "ref_energy",
        "DFT_energy",
        "dft_energy",
        "Energy",
    ),
    "forces": (
        *("forces", "REF_forces", "ref_forces", "DFT_forces", "dft_forces", "Forces"),
        *("force", "REF_force", "DFT_force", "dft_force"),
    ),
    "stress": ("stress", "REF_stress", "ref_stress", "DFT_stress", "dft_stress"),
    "virial": (
        *("virial", "REF_virial", "ref_virial", "DFT_virial", "dft_virial", "virials"),
        *("REF_virials", "DFT_virials"),
    ),
}
PLACES = ("info", "arrays", "calculator")
_KEY = re.compile(r"^(?:(info|arrays|calculator):)?(.+?)(?:\[(\d+)\])?$")
_UNWRITABLE = re.compile(r"[\s:=,\"'\\{}\[\]]")  # what separates things in extended XYZ
_MOVED = 1e-6  # Angstrom


@dataclass(frozen=True)
class LabelSpec:
    """Where the labels of one head are, and in which units.

    A key is looked for in ``atoms.info``, ``atoms.arrays`` and the results of the
    calculator; ``info:energy`` names one place, ``energy[1]`` one of several states.
    A key that is None means that the usual names are tried, in the order of
    ``DEFAULT_KEYS``, then ``<head>_energy`` and ``energy_<head>`` (these first where
    there are several heads); the first that any frame has is used for all frames. Several heads may name one key: when the label holds as
    many values as heads name it, the heads take them in order (state, then xyz).

    Attributes:
        head: Name of the head.
        energy: Key of total energies.
        forces: Key of forces.
        stress: Key of stresses: 6 numbers xx yy zz yz xz xy, or 9.
        virial: Key of virials, ``virial = -volume * stress``: 6 numbers or 9.
        energy_unit: Unit of energies, forces (per ``length_unit``) and virials.
        length_unit: Unit of length in forces and stresses. Positions are in Angstrom.
        stress_unit: Unit of stresses, ``energy_unit / length_unit^3`` when None.

    Raises:
        DataError: For an unknown unit.
    """

    head: str
    energy: str | None = None
    forces: str | None = None
    stress: str | None = None
    virial: str | None = None
    energy_unit: str = "eV"
    length_unit: str = "Ang"
    stress_unit: str | None = None

    def __post_init__(self) -> None:
        self.factor("energy")
        self.factor("stress")

    def factor(self, quantity: str) -> float:
        """Return the factor to eV, eV/Angstrom or eV/Angstrom^3."""
        energy, length = energy_factor(self.energy_unit), length_factor(self.length_unit)
        if quantity == "stress" and self.stress_unit is not None:
            return pressure_factor(self.stress_unit)
        return energy / {"forces": length, "stress": length**3}.get(quantity, 1.0)

    def key(self, quantity: str) -> str | None:
        """Return the key that is named for a quantity."""
        named: str | None = getattr(self, quantity)
        return named


@dataclass(frozen=True)
class KeyChoice:
    """The key that one head reads one quantity from.

    Attributes:
        text: As the user wrote it, for messages.
        place: One of ``PLACES``, or None for any.
        name: The key.
        state: Which of several states; None for a label of one value.
        states: How many states the label must have; None when it is not known.
    """

    text: str
    place: str | None
    name: str
    state: int | None = None
    states: int | None = None


def parse_key(text: str) -> KeyChoice:
    """Split ``place:name[state]``.

    Example:
        >>> choice = parse_key("info:energy[2]")
        >>> choice.place, choice.name, choice.state
        ('info', 'energy', 2)
    """
    found = _KEY.match(text)
    if found is None:
        raise DataError(f"{text!r} is no key")
    place, name, state = found.groups()
    return KeyChoice(text, place, name, None if state is None else int(state))


def check_writable(key: str) -> None:
    """Check that a value written under a key can be read back from extended XYZ.

    Raises:
        DataError: For a key with blanks or marks, or one that ASE keeps for its own.

    Example:
        >>> check_writable("CCSD(T)_energy")
    """
    if _UNWRITABLE.search(key):
        raise DataError(
            f"{key!r} cannot be a key of extended XYZ; give the head a plain name"
        )
    if key in all_outputs:
        raise DataError(
            f"{key!r} is a name that ASE keeps for its own; give the head another name"
        )


def results_of(atoms: Atoms) -> dict[str, Any]:
    """Return what the calculator of a frame holds, without any calculation."""
    results = getattr(atoms.calc, "results", None)
    return {} if results is None else {k: v for k, v in results.items() if v is not None}


def find_label(atoms: Atoms, choice: KeyChoice) -> Any:  # noqa: ANN401
    """Return a label as it stands in a frame, or None.

    Constraints are not applied: labels are read where they are stored.

    Raises:
        DataError: For different values in different places, or a calculator whose
            results belong to other positions.
    """
    places = {"info": atoms.info, "arrays": atoms.arrays, "calculator": results_of(atoms)}
    found = {
        place: values[choice.name]
        for place, values in places.items()
        if choice.place in (None, place) and values.get(choice.name) is not None
    }
    if "calculator" in found:
        _check_current(atoms)
    values = list(found.values())
    for place, other in list(found.items())[1:]:
        if not _same(values[0], other):
            raise DataError(
                f"has two different values of {choice.name!r}, in {next(iter(found))} and "
                f"in {place}; name one place, like '{place}:{choice.name}'"
            )
    return values[0] if values else None


def count_keys(frames: Iterable[Atoms]) -> dict[str, Counter[str]]:
    """Count in how many frames every key is, by place."""
    counts: dict[str, Counter[str]] = {place: Counter() for place in PLACES}
    for atoms in frames:
        counts["info"].update(k for k, v in atoms.info.items() if v is not None)
        counts["arrays"].update(
            k for k in atoms.arrays if k not in ("numbers", "positions")
        )
        counts["calculator"].update(list(results_of(atoms)))
    return counts


def present_keys(counts: dict[str, Counter[str]]) -> set[str]:
    """Return all keys of all places."""
    return {str(key) for place in PLACES for key in counts[place]}


def missing_key(
    choice: str, quantity: str, head: str, counts: dict[str, Counter[str]]
) -> DataError:
    """Return the error for a label that no frame has, listing the keys there are."""
    parts = [
        f"{place}: {', '.join(map(str, counts[place]))}"
        for place in PLACES
        if counts[place]
    ]
    there = "; ".join(parts) if parts else "no keys at all"
    present = present_keys(counts)
    alike = sorted(key for key in present if quantity.rstrip("s") in key.lower())
    hint = did_you_mean(parse_key(choice).name, present) if choice else ""
    if not hint and alike:
        hint = f" Did you mean {alike[0]!r}?"
    what = f"under the key {choice!r}" if choice else "under any of the usual keys"
    return DataError(
        f"no frame has {quantity} of head {head!r} {what}; the frames have {there}.{hint}"
    )


def default_keys(spec: LabelSpec, quantity: str, *, alone: bool) -> tuple[str, ...]:
    """Return the keys that are tried for a quantity that names none, in order.

    Args:
        spec: The head.
        quantity: One of ``LABELS``.
        alone: There is no other head: the usual keys come first. Of several heads,
            each first tries the keys that carry its name.
    """
    own = (f"{spec.head}_{quantity}", f"{quantity}_{spec.head}")
    usual = DEFAULT_KEYS[quantity]
    return (*usual, *own) if alone else (*own, *usual)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401
    try:
        a, b = as_floats(one), as_floats(other)
        if a.size != b.size and {a.size, b.size} == {6, 9}:
            a, b = as_matrices(a, 1), as_matrices(b, 1)
    except DataError:
        return False
    return a.size == b.size and bool(
        np.allclose(a.ravel(), b.ravel(), rtol=1e-8, atol=1e-10, equal_nan=True)
    )


def _check_current(atoms: Atoms) -> None:
    """Refuse results of other positions; moving or folding the whole is no change."""
    then = getattr(atoms.calc, "atoms", None)
    if then is None:
        return
    if not np.array_equal(then.numbers, atoms.numbers):
        raise DataError("has a calculator whose results belong to other atoms")
    moves = atoms.positions - then.positions
    moves = moves - moves[:1]
    if then.cell.rank == 3:
        scaled = np.linalg.solve(then.cell.array.T, moves.T).T
        moves = moves - (np.round(scaled) * then.pbc) @ then.cell.array
    if np.abs(moves).max(initial=0.0) > _MOVED:
        raise DataError(
            "was moved after the results of its calculator were computed; compute them "
            "again, or copy the labels into atoms.info and atoms.arrays"
        )
