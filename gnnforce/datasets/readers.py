"""Structures from files: whole, or refused with the number of the frame."""

import warnings
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TypeVar

from ase import Atoms
from ase.io import read
from ase.io.formats import (
    UnknownFileTypeError,
    filetype,
    open_with_compression,
)

from gnnforce.datasets.databases import count_rows, read_database
from gnnforce.datasets.extxyz import FrameText, parse_frame, split_frames_text
from gnnforce.datasets.npz import read_npz
from gnnforce.datasets.pymatgen_json import is_pymatgen, read_pymatgen
from gnnforce.datasets.units import length_factor
from gnnforce.errors import DataError

T = TypeVar("T")

__all__ = ["read_frames", "read_npz"]


def read_frames(
    path: str | Path, index: str = ":", *, length_unit: str = "Ang"
) -> list[Atoms]:
    """Read structures and whatever stands beside them.

    Extended XYZ, ASE databases (with the data of their rows), NumPy archives, and
    everything else that ASE reads. ASE moves ``energy``, ``forces`` and ``stress`` into
    a calculator; :func:`~gnnforce.datasets.labels.extract_labels` finds them there. ASE
    takes a ``Lattice`` without ``pbc`` for a crystal.

    Args:
        path: The file.
        index: Which frames, as a slice or number of Python: ``":"`` for all.
        length_unit: Unit of positions and cell in the file, where it is not Angstrom.

    Returns:
        At least one frame.

    Raises:
        DataError: For a file that is missing, empty, of unknown format, or damaged
            anywhere, whichever frames are asked; names the frame where it can.
    """
    path = Path(path)
    chosen = _index(index)
    _check_file(path)
    factor = length_factor(length_unit)
    try:
        frames = _read(path, chosen)
    except DataError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise DataError(f"{path}: {reason}") from error
    if not frames:
        raise DataError(f"{path}: no frames at {index!r}")
    for number, atoms in enumerate(frames):
        if len(atoms) == 0:
            raise DataError(f"{path}: frame {number} has no atoms")
        if factor != 1.0:
            _rescale(atoms, factor)
    return frames


def _check_file(path: Path) -> None:
    if not path.exists():
        raise DataError(f"there is no file {path}")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file of structures")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")


def _index(index: str) -> slice | int:
    words = str(index).split(":")
    try:
        numbers = [int(word) if word.strip() else None for word in words]
        if len(words) == 1 and numbers[0] is not None:
            return numbers[0]
        if 2 <= len(words) <= 3:
            return slice(*numbers)
    except ValueError:
        pass
    raise DataError(f"{index!r} is no slice of frames like ':', '0' or '10:20'")


def _read(path: Path, index: slice | int) -> list[Atoms]:
    if path.suffix == ".npz":
        return _pick(read_npz(path), index)
    kind = _format(path)
    if kind in ("xyz", "extxyz"):
        return _read_extxyz(path, index)
    if path.suffix == ".json" and is_pymatgen(path):
        return _pick(list(read_pymatgen(path)), index)
    if kind in ("db", "json") or path.suffix == ".db":
        return _read_database(path, index)
    return _read_other(path, kind, index)


def _format(path: Path) -> str:
    try:
        return str(filetype(str(path)))
    except UnknownFileTypeError as error:
        raise DataError("ASE does not know this file format") from error
    except Exception as error:
        raise DataError(f"cannot be opened ({_reason(error)})") from error


def _read_extxyz(path: Path, index: slice | int) -> list[Atoms]:
    """Look at every frame, parse the chosen ones."""
    texts: list[FrameText] = []
    try:
        # the encoding of extended XYZ is not that of the user's system
        with TextIOWrapper(open_with_compression(str(path), "rb"), "utf-8") as stream:
            if index == slice(None):
                return [parse_frame(text) for text in split_frames_text(stream)]
            texts = list(split_frames_text(stream))
    except UnicodeDecodeError as error:
        raise DataError(f"is no text file ({error.reason})") from error
    return [parse_frame(text) for text in _pick(texts, index)]


def _read_database(path: Path, index: slice | int) -> list[Atoms]:
    try:
        rows = range(count_rows(path))
        chosen = _pick(list(rows), index)
        frames = _in_order(read_database(path), chosen)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"is no ASE database ({_reason(error)})") from error
    return frames


def _in_order(frames: Iterator[Atoms], chosen: list[int]) -> list[Atoms]:
    wanted = set(chosen)
    found = {number: atoms for number, atoms in enumerate(frames) if number in wanted}
    return [found[number] for number in chosen]


def _read_other(path: Path, kind: str, index: slice | int) -> list[Atoms]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # remarks of parsers on what labels do not need
            found = read(
                str(path), slice(None), format=kind, do_not_split_by_at_sign=True
            )
    except UnknownFileTypeError as error:
        raise DataError(f"ASE does not know the file format {kind!r}") from error
    except Exception as error:
        raise DataError(f"cannot be read as {kind} ({_reason(error)})") from error
    return _pick(found if isinstance(found, list) else [found], index)


def _pick(items: list[T], index: slice | int) -> list[T]:
    if isinstance(index, slice):
        return items[index]
    try:
        return [items[index]]
    except IndexError:
        raise DataError(f"there is no frame {index}; there are {len(items)}") from None


def _rescale(atoms: Atoms, factor: float) -> None:
    atoms.positions *= factor
    atoms.cell[:] *= factor
    if atoms.calc is not None:  # its labels still belong to these atoms
        atoms.calc.atoms = atoms.copy()


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
