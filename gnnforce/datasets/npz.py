"""Frames in a NumPy archive: the layout of MD data sets."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from gnnforce.datasets.units import length_factor
from gnnforce.datasets.values import Floats, as_floats
from gnnforce.errors import DataError

NAMES: Mapping[str, tuple[str, ...]] = {
    "positions": ("pos", "positions", "R", "coords", "coordinates"),
    "numbers": ("atomic_numbers", "numbers", "Z", "z", "nuclear_charges", "species"),
    "energy": ("energy", "E", "energies"),
    "forces": ("forces", "F", "force"),
    "cell": ("cell", "lattice"),
    "pbc": ("pbc",),
}


def read_npz(
    path: str | Path, *, names: Mapping[str, str] | None = None, length_unit: str = "Ang"
) -> list[Atoms]:
    """Read frames of one molecule or crystal from a NumPy archive.

    Positions have the shape ``(n_frames, n_atoms, 3)``, atomic numbers ``(n_atoms,)`` or
    ``(n_frames, n_atoms)``, energies ``(n_frames,)`` or ``(n_frames, 1)``, forces the
    shape of the positions; cell ``(3, 3)`` and pbc ``(3,)`` may also be given per frame.
    Any integer type will do for atomic numbers, any byte order for the rest. Labels are
    put into ``info["energy"]`` and ``arrays["forces"]`` in the units of the file.

    Args:
        path: The archive.
        names: Names in the archive for ``positions``, ``numbers``, ``energy``,
            ``forces``, ``cell``, ``pbc``; the usual ones are tried by default
            (``pos``, ``R``, ``atomic_numbers``, ``Z``, ``E``, ``F``, ...).
        length_unit: Unit of positions and cell.

    Returns:
        One ``Atoms`` a frame.

    Raises:
        DataError: For an array that is missing or has a wrong shape or type.
    """
    arrays = _load(Path(path), names or {})
    positions = as_floats(arrays["positions"]) * length_factor(length_unit)
    if positions.ndim == 2:
        positions = positions[None]
    if positions.ndim != 3 or positions.shape[2] != 3:
        raise DataError(
            f"{path}: positions have the shape {positions.shape}, not (n_frames, n_atoms, 3)"
        )
    n_frames, n_atoms = positions.shape[:2]
    numbers = _numbers(arrays["numbers"], n_frames, n_atoms, path)
    energy = _per_frame(arrays, "energy", n_frames, (), path)
    forces = _per_frame(arrays, "forces", n_frames, (n_atoms, 3), path)
    cell = _per_frame(arrays, "cell", n_frames, (3, 3), path)
    pbc = _per_frame(arrays, "pbc", n_frames, (3,), path)
    frames = []
    for number in range(n_frames):
        atoms = Atoms(numbers=numbers[number], positions=positions[number])
        if cell is not None:
            atoms.cell[:] = cell[number] * length_factor(length_unit)
        if pbc is not None:
            atoms.pbc = pbc[number].astype(bool)
        if energy is not None:
            atoms.info["energy"] = float(energy[number])
        if forces is not None:
            atoms.arrays["forces"] = np.array(forces[number])
        frames.append(atoms)
    return frames


def _load(path: Path, names: Mapping[str, str]) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            stored = {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: not a NumPy archive of plain arrays ({error})"
        ) from error
    found = {}
    for what, usual in NAMES.items():
        tried = (names[what],) if what in names else usual
        present = [key for key in tried if key in stored]
        if present:
            found[what] = stored[present[0]]
        elif what in names or what in ("positions", "numbers"):
            raise DataError(
                f"{path}: no array {' or '.join(map(repr, tried))} for {what}; the file "
                f"has {', '.join(stored)}"
            )
    return found


def _numbers(
    value: NDArray[Any], n_frames: int, n_atoms: int, path: str | Path
) -> NDArray[np.int64]:
    floats = _named(value, "numbers", path)
    numbers = np.array(floats, dtype=np.int64)
    if (numbers != floats).any():
        raise DataError(f"{path}: atomic numbers must be whole numbers")
    if (
        numbers.ndim > 2
        or numbers.shape[-1] != n_atoms
        or (numbers.ndim == 2 and len(numbers) not in (1, n_frames))
    ):
        raise DataError(
            f"{path}: atomic numbers have the shape {numbers.shape}, which does not fit "
            f"positions of {n_frames} frames of {n_atoms} atoms"
        )
    return np.broadcast_to(numbers, (n_frames, n_atoms))


def _per_frame(
    arrays: Mapping[str, Any],
    name: str,
    n_frames: int,
    shape: tuple[int, ...],
    path: str | Path,
) -> Floats | None:
    """Return ``(n_frames, *shape)``, repeating what is given once for all frames."""
    if name not in arrays:
        return None
    raw = arrays[name]
    values = _named(raw.astype(float) if raw.dtype.kind == "b" else raw, name, path)
    once = name in ("cell", "pbc") and values.shape == shape
    if once or values.shape == (n_frames, *shape):
        return np.broadcast_to(values, (n_frames, *shape))
    if values.shape == (n_frames, *shape, 1) or (n_frames == 1 and values.shape == shape):
        return values.reshape(n_frames, *shape)
    raise DataError(
        f"{path}: {name} has the shape {values.shape}, not {(n_frames, *shape)}"
    )


def _named(value: Any, name: str, path: str | Path) -> Floats:  # noqa: ANN401
    try:
        return as_floats(value)
    except DataError as error:
        raise DataError(f"{path}: {name} {error}") from error
