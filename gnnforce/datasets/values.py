"""Whatever a file holds as numbers, turned into float64 arrays of one layout."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnforce.errors import DataError

Floats = NDArray[np.float64]

FORTRAN = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+))[dD]([-+]?\d+)$")
DECIMAL_COMMA = re.compile(r"^[-+]?\d+,\d+(?:[eEdD][-+]?\d+)?$")
VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))  # xx yy zz yz xz xy
SYMMETRY_TOLERANCE = 1e-3  # of the largest component: rounding of printed numbers


def as_floats(value: Any) -> Floats:  # noqa: ANN401
    """Turn numbers of any type into a new float64 array.

    Integers, unsigned and big-endian numbers, read-only arrays and text like
    ``"-1.0D+02"`` (Fortran) are all read; the input is never changed.

    Args:
        value: A number, a text of numbers separated by blanks, or an array of these.

    Returns:
        A new array, in the shape of the input.

    Raises:
        DataError: For anything that is no number, a decimal comma and truth values
            among them.

    Example:
        >>> as_floats("-1.0D+02 2").tolist()
        [-100.0, 2.0]
    """
    if isinstance(value, str):
        words = value.split()
        numbers = [_number(word) for word in words]
        if not words:
            raise DataError("is an empty text, which is no number")
        return np.array(numbers[0] if len(numbers) == 1 else numbers, dtype=np.float64)
    array = np.asarray(value)
    if array.dtype.kind in "iuf":
        return np.array(array, dtype=np.float64, order="C")
    if array.dtype.kind in "USO" and array.size:
        flat = [_number(item) for item in array.ravel().tolist()]
        return np.array(flat, dtype=np.float64).reshape(array.shape)
    raise DataError(f"is {value!r}, which is no number")


def split_states(values: Floats, states: int | None, shape: tuple[int, ...]) -> Floats:
    """Give a label its axis of states.

    Per-atom labels hold states as ``(n_atoms, n_states, 3)`` or flat as
    ``(n_atoms, 3 * n_states)`` (state, then xyz); labels of a structure hold them
    first. States are never re-ordered.

    Args:
        values: The numbers.
        states: How many states there are; None to find out.
        shape: Of one state: ``()`` or ``(n_atoms, 3)``.

    Returns:
        The states first: ``(n_states, *shape)``.

    Raises:
        DataError: For a shape that does not fit.

    Example:
        >>> split_states(np.arange(6.0).reshape(1, 6), 2, (1, 3))[1].tolist()
        [[3.0, 4.0, 5.0]]
    """
    given = values.shape
    found: Floats
    if not shape:
        found = values.ravel()
    else:
        n_atoms = shape[0]
        number = values.size // (3 * n_atoms)
        layouts = [(n_atoms, 3 * number), (n_atoms, number, 3)]
        if number == 1:
            layouts += [(3 * n_atoms,)]
        if number * 3 * n_atoms != values.size or given not in layouts:
            raise DataError(
                f"has the shape {given}, but {n_atoms} atoms need {layouts_text(n_atoms)}"
            )
        found = values.reshape(n_atoms, number, 3).transpose(1, 0, 2)
    if states is not None and len(found) != states:
        hint = _hint(states) if len(found) > 1 else ""
        raise DataError(f"has {len(found)} values, where {states} fit{hint}")
    return found


def layouts_text(n_atoms: int) -> str:
    """Say which shapes a label per atom may have."""
    return f"({n_atoms}, 3), or ({n_atoms}, n_states, 3) for several states"


def as_matrices(values: Floats, states: int | None) -> Floats:
    """Give six or nine numbers a state the form of a matrix.

    Six numbers are xx yy zz yz xz xy (ASE's order); nine are the whole matrix, which
    must be symmetric within 0.1 % of its largest component.

    Args:
        values: ``6``, ``9`` or ``(3, 3)`` numbers a state, states first.
        states: How many states there are; None to find out from the shape.

    Returns:
        Symmetric matrices, shape ``(n_states, 3, 3)``.

    Raises:
        DataError: For another number of components or an unsymmetric matrix.

    Example:
        >>> as_matrices(np.array([1.0, 2, 3, 4, 5, 6]), 1)[0].tolist()
        [[1.0, 6.0, 5.0], [6.0, 2.0, 4.0], [5.0, 4.0, 3.0]]
    """
    number = states or (1 if values.size in (6, 9) else len(np.atleast_1d(values)))
    flat = values.reshape(number, -1) if values.size % number == 0 else np.empty((0, 0))
    if flat.shape[1] == 6:
        matrices = np.empty((number, 3, 3))
        for column, (i, j) in enumerate(VOIGT):
            matrices[:, i, j] = matrices[:, j, i] = flat[:, column]
        return matrices
    if flat.shape[1] != 9:
        raise DataError(
            f"has the shape {values.shape}; give 6 numbers (xx yy zz yz xz xy) or all 9"
            + _hint(number)
        )
    full = flat.reshape(number, 3, 3)
    transposed = full.transpose(0, 2, 1)
    largest = np.nanmax(np.abs(full), initial=0.0)
    if np.nanmax(np.abs(full - transposed), initial=0.0) > SYMMETRY_TOLERANCE * largest:
        raise DataError(
            f"is not symmetric: {full.tolist() if number > 1 else full[0].tolist()}"
        )
    return 0.5 * (full + transposed)


def _hint(states: int) -> str:
    return (
        "; name one of several states like 'energy[0]', or give one head a state"
        if states == 1
        else ""
    )


def _number(word: Any) -> float:  # noqa: ANN401
    if isinstance(word, bool | np.bool_) or word is None:
        raise DataError(f"is {word!r}, which is no number")
    try:
        return float(FORTRAN.sub(r"\1e\2", word) if isinstance(word, str) else word)
    except (TypeError, ValueError):
        comma = isinstance(word, str) and DECIMAL_COMMA.match(word)
        hint = "; write decimals with a point" if comma else ""
        raise DataError(f"is {word!r}, which is no number{hint}") from None
