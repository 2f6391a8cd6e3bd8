"""What ``gnnforce info`` says about a file of structures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from gnnforce.cli.console import digits, print_pairs, print_table
from gnnforce.datasets.readers import read_frames

_PLACES = ("info", "arrays", "calculator")
_STRUCTURE = ("numbers", "positions")  # arrays that every frame has
_AXES = "xyz"


def describe_data(path: Path, index: str = ":") -> dict[str, Any]:
    """Put a file of structures into plain values.

    Args:
        path: Any file that ASE reads.
        index: Which frames, as a slice of Python.

    Returns:
        Number of frames and atoms, smallest and largest structure, atoms by element,
        keys of info, arrays and calculator with the number of frames that have each,
        kinds of periodicity, ranges of all scalar energies (eV, as they stand in the
        file) and of force components, frames that repeat an earlier one.

    Raises:
        DataError: For a file that is missing, empty or cannot be read.
    """
    frames = read_frames(path, index)
    sizes = [len(atoms) for atoms in frames]
    elements = Counter(s for atoms in frames for s in atoms.get_chemical_symbols())
    return {
        "file": path,
        "frames": len(frames),
        "atoms": sum(sizes),
        "atoms_per_frame": [min(sizes), max(sizes)],
        "elements": dict(sorted(elements.items())),
        "formulas": len({atoms.get_chemical_formula() for atoms in frames}),
        "keys": {place: _count_keys(frames, place) for place in _PLACES},
        "cells": dict(Counter(_cell_kind(atoms) for atoms in frames)),
        "ranges": _ranges(frames),
        "duplicates": duplicates(frames),
    }


def duplicates(frames: Sequence[Atoms]) -> list[list[int]]:
    """Return pairs of frames with equal elements, positions, cell and periodicity.

    Args:
        frames: Structures.

    Returns:
        ``[earlier, later]`` for every frame that repeats an earlier one; to 1e-6
        Angstrom, labels are not compared.

    Example:
        >>> one, two = Atoms("H", [[0, 0, 0]]), Atoms("H", [[0, 0, 1]])
        >>> duplicates([one, two, one.copy()])
        [[0, 2]]
    """
    seen: dict[bytes, int] = {}
    pairs = []
    for number, atoms in enumerate(frames):
        numbers = [atoms.positions, atoms.cell.array]
        rounded = b"".join((np.round(x, 6) + 0.0).tobytes() for x in numbers)
        key = atoms.numbers.tobytes() + atoms.pbc.tobytes() + rounded
        if key in seen:
            pairs.append([seen[key], number])
        seen.setdefault(key, number)
    return pairs


def print_data(report: dict[str, Any]) -> None:
    """Print a report of :func:`describe_data` for people."""
    low, high = report["atoms_per_frame"]
    elements = ", ".join(f"{s} {n}" for s, n in report["elements"].items())
    cells = ", ".join(f"{kind} {n}" for kind, n in report["cells"].items())
    pairs = {
        "file": report["file"],
        "frames": report["frames"],
        "atoms": f"{report['atoms']} ({low if low == high else f'{low}-{high}'} a frame)",
        "elements": elements,
        "formulas": report["formulas"],
        "cells": cells,
        "repeated frames": _repeats(report["duplicates"]),
    }
    print_pairs(pairs)
    rows = [
        [key, place, count, *_range_cells(report["ranges"].get(f"{place}:{key}"))]
        for place in _PLACES
        for key, count in report["keys"][place].items()
    ]
    print()
    if rows:
        print_table(["key", "where", "frames", "smallest", "largest"], rows)
    else:
        print("no labels or other keys")


def _places(atoms: Atoms) -> dict[str, dict[str, Any]]:
    arrays = {k: v for k, v in atoms.arrays.items() if k not in _STRUCTURE}
    results = {} if atoms.calc is None else dict(atoms.calc.results)
    return {"info": dict(atoms.info), "arrays": arrays, "calculator": results}


def _count_keys(frames: Iterable[Atoms], place: str) -> dict[str, int]:
    return dict(Counter(key for atoms in frames for key in _places(atoms)[place]))


def _cell_kind(atoms: Atoms) -> str:
    """Say which directions are periodic and whether the cell spans a volume."""
    axes = "".join(axis for axis, yes in zip(_AXES, atoms.pbc, strict=True) if yes)
    if atoms.cell.rank == 0:
        cell = "without a cell"
    elif atoms.cell.volume > 0:
        cell = "with a cell"
    else:
        cell = "with a flat cell"
    return f"{f'periodic in {axes}' if axes else 'not periodic'} {cell}"


def _ranges(frames: Iterable[Atoms]) -> dict[str, dict[str, float]]:
    """Return smallest and largest value of every numeric key, and how many are not finite."""
    ranges: dict[str, dict[str, float]] = {}
    for atoms in frames:
        for place, values in _places(atoms).items():
            for key, value in values.items():
                array = np.asarray(value)
                if array.dtype.kind in "iuf" and array.size:
                    _widen(ranges.setdefault(f"{place}:{key}", {}), array.astype(float))
    return ranges


def _widen(found: dict[str, float], array: np.ndarray) -> None:
    finite = array[np.isfinite(array)]
    found["not_finite"] = found.get("not_finite", 0) + array.size - finite.size
    if finite.size:
        found["min"] = min(found.get("min", np.inf), float(finite.min()))
        found["max"] = max(found.get("max", -np.inf), float(finite.max()))


def _range_cells(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["", ""]
    low, high = (digits(found.get(name), 6) for name in ("min", "max"))
    bad = found["not_finite"]
    return [low, f"{high} ({bad:.0f} not finite!)" if bad else high]


def _repeats(pairs: list[list[int]]) -> str:
    if not pairs:
        return "none"
    shown = ", ".join(f"{later} = {earlier}" for earlier, later in pairs[:5])
    return f"{len(pairs)} ({shown}{', ...' if len(pairs) > 5 else ''})"
