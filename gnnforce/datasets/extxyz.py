"""Extended XYZ, frame by frame: read whole, or refused with the frame number.

ASE parses every frame; what is done here is what ASE does not: find where frames
start without stopping at a blank line, notice columns that the header does not name,
and keep stresses that ASE refuses (six numbers) or halves (an unsymmetric matrix).
"""

import re
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from typing import IO, Any, NamedTuple

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.extxyz import key_val_str_to_dict, read_xyz

from gnnforce.datasets.values import FORTRAN, VOIGT, as_floats, as_matrices
from gnnforce.errors import DataError

_MATRICES = ("stress", "virial")
_HELD = "gnnforce_held_"  # what ASE would refuse or change, until the frame is built
_HOLD = re.compile(rf"(?<![^\s])({'|'.join(_MATRICES)})(?=\s*=)")
_COMMA_WORD = re.compile(
    r"(?<![^\s])([A-Za-z_][\w-]*)=([-+]?\d+,\d+(?:[eEdD][-+]?\d+)?)(?!\S)"
)

_PROPERTIES = re.compile(r"(?<!\S)Properties\s*=\s*[\"']?([\w:.-]+)")


class FrameText(NamedTuple):
    """The lines of one frame and where they start."""

    number: int
    line: int
    lines: list[str]


def split_frames_text(stream: IO[str]) -> Iterator[FrameText]:
    """Yield the lines of every frame.

    Args:
        stream: A text file at its beginning.

    Yields:
        Frames in order; blank lines between frames are passed over.

    Raises:
        DataError: Where no number of atoms stands, or the file ends inside a frame.
    """
    number = line_number = 0
    pending = stream.readline().lstrip("\ufeff")  # a mark that some editors put first
    while pending:
        line_number += 1
        if not pending.strip():
            pending = stream.readline()
            continue
        n_atoms = _count(pending, number, line_number)
        lines = [pending, *islice(iter(stream.readline, ""), n_atoms + 1)]
        if len(lines) < n_atoms + 2:
            rows = max(len(lines) - 2, 0)
            raise DataError(
                f"frame {number} (line {line_number}): the file ends after {rows} of "
                f"{n_atoms} atoms"
            )
        pending = stream.readline()
        while pending.lstrip().startswith("VEC"):
            lines.append(pending)
            pending = stream.readline()
        yield FrameText(number, line_number, lines)
        number += 1
        line_number += len(lines) - 1


def parse_frame(frame: FrameText) -> Atoms:
    """Parse one frame.

    Args:
        frame: Its lines.

    Returns:
        As ASE gives it: ``energy``, ``forces``, ``stress`` in a calculator. A stress of
        six numbers is read as well; an unsymmetric one of nine stays in ``info`` as it
        is, to be refused where it is used.

    Raises:
        DataError: Names frame, line and reason.
    """
    try:
        _check_columns(frame)
        try:
            atoms = _parse("".join(frame.lines))
        except ValueError:
            atoms = _parse(_without_fortran(frame.lines))
    except DataError:
        raise
    except KeyError as error:
        raise _refused(frame, f"{error.args[0]!r} is no element") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _refused(frame, reason) from error
    return atoms


def _refused(frame: FrameText, reason: str) -> DataError:
    return DataError(f"frame {frame.number} (line {frame.line}): {reason}")


def _count(text: str, number: int, line: int) -> int:
    words = text.split()
    if len(words) == 1 and words[0].isdigit():
        return int(words[0])
    raise DataError(
        f"frame {number} (line {line}): expected the number of atoms, found "
        f"{text.strip()[:60]!r}"
    )


def _parse(text: str) -> Atoms:
    atoms: Atoms = next(read_xyz(StringIO(text), 0, properties_parser=parse_comment))
    for key in _MATRICES:
        if _HELD + key in atoms.info:
            _put_matrix(atoms, key, atoms.info.pop(_HELD + key))
    return atoms


def parse_comment(line: str) -> dict[str, Any]:
    """Parse the comment line like ASE, but let every form of stress through.

    A word like ``-1,5`` stays text, where ASE makes two numbers of it.

    Args:
        line: The second line of a frame.

    Returns:
        Keys and values.

    Example:
        >>> values = parse_comment("energy=-1 shift=-1,5")
        >>> int(values["energy"]), values["shift"]
        (-1, '-1,5')
    """
    values: dict[str, Any] = key_val_str_to_dict(_HOLD.sub(_HELD + r"\1", line))
    for key, value in values.items():
        if isinstance(value, str) and _HELD in value:  # a text that speaks of "stress ="
            values[key] = value.replace(_HELD, "")
    for key, word in _COMMA_WORD.findall(line):
        if key in values:
            values[key] = word
    return values


def _put_matrix(atoms: Atoms, key: str, value: Any) -> None:  # noqa: ANN401
    """Put a stress where ASE puts it, or leave it in ``info`` when it is no matrix."""
    try:
        matrix = as_matrices(as_floats(value), 1)[0]
    except DataError:
        raw = np.asarray(value)
        atoms.info[key] = raw.reshape(3, 3) if raw.size == 9 else value
        return
    if key != "stress":
        atoms.info[key] = matrix
        return
    if atoms.calc is None:
        atoms.calc = SinglePointCalculator(atoms)
    atoms.calc.results[key] = np.array([matrix[i, j] for i, j in VOIGT])


def _without_fortran(lines: list[str]) -> str:
    """Rewrite ``1.0D+02`` as ``1.0e+02`` in the columns."""
    rows = [
        " ".join(FORTRAN.sub(r"\1e\2", word) for word in line.split()) + "\n"
        for line in lines[2:]
    ]
    return "".join([*lines[:2], *rows])


def _check_columns(frame: FrameText) -> None:
    """Refuse rows that do not fit the header; ASE drops columns without a name."""
    found = _PROPERTIES.search(frame.lines[1])
    layout = found[1] if found else "species:S:1:pos:R:3"
    words = layout.split(":")[2::3]
    if not all(word.isdigit() for word in words):
        return  # ASE says what is wrong with the header
    expected = sum(map(int, words))
    for row, line in enumerate(frame.lines[2 : 2 + int(frame.lines[0])]):
        given = len(line.split())
        if given < expected or (given > expected and found):
            raise _refused(
                frame,
                f"atom {row} has {given} columns where the header names {expected}: "
                f"{line.strip()[:60]!r}",
            )
