"""Random splits that can be repeated, keep groups together and leak no duplicates."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms

from gnnforce.datasets.duplicates import (
    duplicate_frames,
    structure_hash,
    structure_key,
)
from gnnforce.datasets.isolated import is_isolated, is_marked
from gnnforce.errors import DataError

__all__ = ["Split", "duplicate_frames", "split_frames"]

FORMAT = 1


@dataclass
class Split:
    """Rows of frames for training, validation and test; sorted, none twice.

    Attributes:
        train: Rows to train on.
        valid: Rows to validate on.
        test: Rows that are left.
        unused: Rows that are left out because the same structure is in another set.
        messages: What people should know.
    """

    train: list[int]
    valid: list[int]
    test: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def save(self, path: str | Path, frames: Sequence[Atoms]) -> None:
        """Write the split and a hash of the structures as JSON."""
        record = {
            "format": FORMAT,
            "n_frames": len(frames),
            "hash": structure_hash(frames),
            **asdict(self),
        }
        Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, frames: Sequence[Atoms]) -> "Split":
        """Read a split and check that it was made for these structures.

        Raises:
            DataError: For a file that is no split, or one of other structures.
        """
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            n_frames, digest = record.pop("n_frames"), record.pop("hash")
            if record.pop("format") != FORMAT:
                raise DataError(f"{path} is a split of another version of gnnforce")
            split = cls(**record)
        except FileNotFoundError:
            raise DataError(f"there is no file {path}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is no split file") from error
        if n_frames != len(frames):
            raise DataError(
                f"{path} was made for {n_frames} frames, but there are {len(frames)}; make "
                "a new split"
            )
        if digest != structure_hash(frames):
            raise DataError(
                f"{path} was made for other structures, or these in another order; make a "
                "new split"
            )
        return split


def split_frames(
    frames: Sequence[Atoms],
    n_train: int | None = None,
    n_valid: int | None = None,
    fraction: float | None = None,
    *,
    seed: int = 0,
    group_key: str | None = None,
) -> Split:
    """Draw training and validation frames at random, from all frames alike.

    Frames that are the same structure stay on one side. Where numbers of frames are
    asked, a structure that would be on both sides is left out there (``unused``), so
    that the numbers are met; a fraction is met as nearly as whole structures and groups
    allow, without passing it. Isolated atoms, which give the reference energies, are
    always for training, unless there is nothing else.

    Args:
        frames: All frames.
        n_train: Frames to train on; all that are left by default.
        n_valid: Frames to validate on.
        fraction: Frames to validate on as a fraction of all, instead of ``n_valid``.
        seed: Of the draw, which depends on nothing else.
        group_key: Key in ``info``; frames with the same value stay on one side.

    Returns:
        The split. Frames that neither set takes are in ``test``.

    Raises:
        DataError: For numbers that do not fit, an empty set, or a frame without group.

    Example:
        >>> frames = [Atoms("H2", [[0, 0, 0], [0, 0, x]]) for x in range(1, 11)]
        >>> split = split_frames(frames, fraction=0.2, seed=1)
        >>> len(split.train), len(split.valid)
        (8, 2)
    """
    n_valid = _n_valid(len(frames), n_valid, fraction)
    if n_train is not None and n_train < 1:
        raise DataError(f"n_train must be at least 1, not {n_train}")
    if (n_train or 1) + n_valid > len(frames):
        raise DataError(
            f"{len(frames)} frames cannot give {n_train or 'some'} for training and "
            f"{n_valid} for validation; ask for fewer"
        )
    kept = _isolated(frames, n_train)
    units = _units(frames, group_key, kept)
    order = np.random.default_rng(seed).permutation(len(units))
    left = [units[number] for number in order]
    exact = fraction is None and group_key is None
    unused: list[int] = []
    valid = _take(left, n_valid, unused, exact=exact)
    if n_valid and not valid:
        raise DataError(
            f"{len(frames)} frames are too few different ones: none of their groups (the "
            f"same structure, or the same {group_key or 'group_key'}) is as small as the "
            f"{n_valid} frame(s) asked for validation; ask for more, or for none (valid: null)"
        )
    test: list[int] = []
    if n_train is None:
        train = kept + [row for unit in left for row in unit]
    else:
        train = kept + _take(left, n_train - len(kept), unused, exact=exact)
        test = [row for unit in left for row in unit]
    if not train:
        raise DataError(
            f"no frames are left to train on of {len(frames)}; validate on fewer"
        )
    messages = [f"{len(kept)} isolated atoms stay in training"] if kept else []
    if len(valid) != n_valid:
        messages.append(f"{len(valid)} instead of {n_valid} frames for validation")
    if unused:
        messages.append(f"{len(unused)} frames are repeats of others and not used")
    return Split(sorted(train), sorted(valid), sorted(test), sorted(unused), messages)


def _n_valid(n_frames: int, n_valid: int | None, fraction: float | None) -> int:
    if fraction is None:
        if n_valid is not None and n_valid < 0:
            raise DataError(f"n_valid must not be negative, but is {n_valid}")
        return n_valid or 0
    if n_valid is not None:
        raise DataError("n_valid and fraction exclude each other; give one of them")
    if not 0 < fraction < 1:
        raise DataError(f"a fraction lies between 0 and 1, not {fraction}")
    number = round(fraction * n_frames)
    if not 0 < number < n_frames:
        raise DataError(
            f"a validation fraction of {fraction:g} of {n_frames} frame(s) leaves "
            f"{number} for validation and {n_frames - number} for training; give more "
            "frames, another fraction, or no validation set (valid: null)"
        )
    return number


def _isolated(frames: Sequence[Atoms], n_train: int | None) -> list[int]:
    """Return the rows of isolated atoms, none when nothing else would be trained on."""
    rows = [
        row
        for row, atoms in enumerate(frames)
        if is_isolated(atoms, marked=is_marked(atoms))
    ]
    limit = len(frames) if n_train is None else n_train
    return rows if len(rows) < limit else []


def _units(
    frames: Sequence[Atoms], group_key: str | None, kept: Sequence[int]
) -> list[list[int]]:
    """Join frames that must stay together, in the order of their first frame."""
    owner: dict[object, int] = {}
    root = list(range(len(frames)))

    def find(row: int) -> int:
        while root[row] != row:
            row = root[row]
        return row

    for row in sorted(set(range(len(frames))) - set(kept)):
        atoms = frames[row]
        marks: list[object] = [structure_key(atoms)]
        if group_key is not None:
            marks.append(("group", _group(atoms, group_key, row)))
        for mark in marks:
            first, second = sorted((find(owner.setdefault(mark, row)), find(row)))
            root[second] = first
    units: dict[int, list[int]] = {}
    for row in sorted(set(range(len(frames))) - set(kept)):
        units.setdefault(find(row), []).append(row)
    return list(units.values())


def _group(atoms: Atoms, key: str, row: int) -> str:
    if atoms.info.get(key) is None:
        present = ", ".join(map(str, atoms.info)) or "nothing"
        raise DataError(f"frame {row} has no group {key!r} in info, which has {present}")
    return str(atoms.info[key])


def _take(
    units: list[list[int]], number: int, unused: list[int], *, exact: bool
) -> list[int]:
    """Move whole units out of the list while they fit.

    When the number shall be met exactly, part of one more unit is taken and the rest of
    it is not used at all.
    """
    rows: list[int] = []
    for unit in list(units):
        if len(rows) + len(unit) <= number:
            rows += unit
            units.remove(unit)
    missing = number - len(rows)
    if exact and missing and units:
        unit = units.pop(0)
        rows += unit[:missing]
        unused += unit[missing:]
    return rows
