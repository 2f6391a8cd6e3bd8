"""The files of a run: log, trajectory and restart state, always in step."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import write
from numpy.typing import NDArray

from gnnforce.errors import DataError
from gnnforce.simulation.monitor import Record

TRAJECTORY, LOG, RESTART = "trajectory.extxyz", "md.csv", "restart.json"
FINAL, UNCERTAIN, LAST_GOOD = "final.xyz", "uncertain.xyz", "last_good.xyz"
_ALL = (TRAJECTORY, LOG, RESTART, FINAL, UNCERTAIN, LAST_GOOD)
_FORMAT = 1


@dataclass(frozen=True)
class State:
    """Everything a run needs to go on exactly where it was.

    Attributes:
        step: Steps made so far.
        ensemble: Name of the ensemble.
        timestep_fs: In fs.
        numbers: Atomic numbers.
        positions: In Angstrom, ``(n_atoms, 3)`` nested lists, every bit kept.
        momenta: In ASE's units, likewise.
        cell: Rows are lattice vectors in Angstrom.
        rng: State of the random number generator.
        integrator: What the integrator remembers.
        sizes: Bytes of log and trajectory that belong to the steps made so far.
    """

    step: int
    ensemble: str
    timestep_fs: float
    numbers: list[int]
    positions: list[list[float]]
    momenta: list[list[float]]
    cell: list[list[float]]
    rng: dict[str, Any]
    integrator: dict[str, float]
    sizes: dict[str, int]


class RunFiles:
    """Appends to the files of a run in one folder.

    Args:
        folder: Made if it is not there.

    Raises:
        DataError: When the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot make the folder {folder}: {error.strerror}"
            raise DataError(reason) from error
        self._columns: Sequence[str] | None = None

    def path(self, name: str) -> Path:
        """Return the path of one of the files."""
        return self.folder / name

    def set_aside(self) -> Path | None:
        """Move the files of an earlier run to ``previous_1``, ``previous_2`` ...

        Returns:
            The folder they are in now, or ``None`` if there were none.
        """
        old = [self.path(name) for name in _ALL if self.path(name).exists()]
        if not old:
            return None
        number = 1
        while (self.folder / f"previous_{number}").exists():
            number += 1
        aside = self.folder / f"previous_{number}"
        aside.mkdir()
        for path in old:
            path.rename(aside / path.name)
        return aside

    def log(self, record: Record) -> None:
        """Append a line to the log, with a heading if it is the first."""
        path = self.path(LOG)
        if self._columns is None:
            self._columns = _columns(path) or tuple(record)
        new = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns, extrasaction="ignore")
            if new:
                writer.writeheader()
            writer.writerow(record)

    def append_frame(self, frame: Atoms) -> None:
        """Append a frame to the trajectory."""
        with self.path(TRAJECTORY).open("a") as stream:
            write(stream, frame, format="extxyz")

    def write_frame(self, name: str, frame: Atoms) -> Path:
        """Write a single frame to a file of its own."""
        with self.path(name).open("w") as stream:
            write(stream, frame, format="extxyz")
        return self.path(name)

    def sizes(self) -> dict[str, int]:
        """Return the present size of log and trajectory in bytes."""
        return {name: self.path(name).stat().st_size for name in (LOG, TRAJECTORY)}

    def save_state(self, state: State) -> None:
        """Write the restart file, whole or not at all."""
        part = self.path(RESTART).with_suffix(".part")
        part.write_text(json.dumps({"format": _FORMAT, **vars(state)}))
        part.replace(self.path(RESTART))

    def load_state(self) -> State:
        """Read the restart file and cut log and trajectory back to its step.

        Raises:
            DataError: When a file is missing, damaged or of another format.
        """
        path = self.path(RESTART)
        if not path.is_file():
            raise DataError(f"there is no run to restart in {self.folder}: no {RESTART}")
        try:
            content = json.loads(path.read_text())
            if content.pop("format") != _FORMAT:
                raise DataError(f"{path} is of another version of gnnforce")
            state = State(**content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is not a restart file of gnnforce") from error
        for name, size in state.sizes.items():
            self._cut(name, size)
        return state

    def _cut(self, name: str, size: int) -> None:
        path = self.path(name)
        if not path.is_file() or path.stat().st_size < size:
            raise DataError(
                f"{path} has been changed or removed since {RESTART} was written; the "
                "run cannot go on from there"
            )
        with path.open("r+b") as stream:
            stream.truncate(size)


def read_log(path: str | Path) -> dict[str, NDArray[np.float64]]:
    """Read the log of a run.

    Args:
        path: The file ``md.csv``, or the folder it is in.

    Returns:
        One array a column, see :func:`gnnforce.simulation.monitor.observe`.

    Raises:
        DataError: When there is no such file or it holds no lines.
    """
    path = Path(path)
    path = path / LOG if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"there is no log {path}")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        raise DataError(f"the log {path} holds no lines")
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _columns(path: Path) -> Sequence[str] | None:
    if not path.is_file():
        return None
    with path.open(newline="") as stream:
        return csv.DictReader(stream).fieldnames
