"""Energies of isolated atoms (E0): given, from one-atom frames, or by least squares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from ase import Atoms

from gnnforce.datasets.elements import symbol
from gnnforce.datasets.given import given_references
from gnnforce.datasets.isolated import AtomEnergies, isolated_energies
from gnnforce.datasets.labels import LabelTable, extract_labels
from gnnforce.errors import ConfigError, DataError


@dataclass(frozen=True)
class Sample:
    """Frames and their labels, for one head."""

    frames: Sequence[Atoms]
    table: LabelTable
    head: str


@dataclass
class References:
    """E0 of every head.

    Attributes:
        table: ``{head: {atomic number: energy in eV}}``.
        origin: Per head ``"given"``, ``"isolated atoms"``, ``"least squares"``, or
            ``"isolated atoms and least squares"``, or ``"none"`` without labels.
        taken: Rows of the frames that gave an E0.
        deficient: Heads whose least squares had more than one solution.
        messages: What people should know, in lines.
    """

    table: dict[str, dict[int, float]] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)
    deficient: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def fit_references(
    frames: Sequence[Atoms],
    table: LabelTable,
    heads: Sequence[str],
    elements: Sequence[int],
    *,
    given: Mapping[object, object] | None = None,
    isolated: Sequence[Atoms] | None = None,
) -> References:
    r"""Find the energy of an isolated atom of every element, for every head.

    In this order: what is given; one-atom frames (those of ``isolated``, then those
    among the frames); for elements without either, least squares of the energies,

    .. math:: \min_{E_0} \sum_f \Big(\frac{E_f - \sum_Z n_{fZ} E_{0,Z}}{n_f}\Big)^2,

    with the smallest norm where there is more than one solution, which is reported.

    A one-atom frame is an isolated atom when its ``config_type`` is ``IsolatedAtom``,
    or when it is neutral and has no periodic images within 10 Angstrom. A marked frame
    wins over others of its element.

    Args:
        frames: Training frames.
        table: Their labels.
        heads: Heads of the model; those without labels get zeros.
        elements: Atomic numbers of the model.
        given: ``{element: energy}`` for all heads or ``{head: {element: energy}}``, in eV;
            an element is a symbol, a number or a number as text. Elements and heads that
            are not needed are ignored; heads that are not named are fitted.
        isolated: Frames of isolated atoms, read with the keys and units of ``table``.

    Returns:
        E0 for all heads and elements.

    Raises:
        ConfigError: For a given table that lacks an element or names none.
        DataError: For isolated atoms that contradict each other.

    Example:
        >>> from gnnforce.datasets.labels import LabelSpec, extract_labels
        >>> h2 = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]], info={"energy": -32.0})
        >>> table = extract_labels([h2], [LabelSpec("energy")])
        >>> fit_references([h2], table, ["energy"], [1]).table
        {'energy': {1: -16.0}}
    """
    if len(frames) != len(table):
        raise DataError(f"{len(frames)} frames, but labels of {len(table)}")
    result = References()
    named = given_references(given, heads, result.messages)
    extra = None if isolated is None else _outside(isolated, table)
    taken: set[int] = set()
    for head in heads:
        if head in named:
            _use_given(result, head, named[head], elements)
        elif head not in table.heads:
            _use_nothing(result, head, elements)
        else:
            own = isolated_energies(frames, table, head)
            outside: dict[int, float] = {}
            if extra is not None:
                outside = _outside_energies(isolated or [], extra, head)
            sample = Sample(frames, table, head)
            taken |= _use_frames(result, sample, elements, own, outside)
    result.taken = sorted(taken)
    return result


def _outside_energies(
    isolated: Sequence[Atoms], table: LabelTable, head: str
) -> dict[int, float]:
    try:
        return dict(isolated_energies(isolated, table, head, all_alone=True).energies)
    except DataError as error:
        raise DataError(f"isolated atoms: {error}") from error


def _outside(isolated: Sequence[Atoms], table: LabelTable) -> LabelTable:
    try:
        return extract_labels(isolated, table.specs, require=())
    except DataError as error:
        raise DataError(f"isolated atoms: {error}") from error


def _use_given(
    result: References, head: str, named: Mapping[int, float], elements: Sequence[int]
) -> None:
    missing = [z for z in elements if z not in named]
    if missing:
        names = ", ".join(symbol(z) for z in missing)
        raise ConfigError(
            f"references of head {head!r} lack {names}; give an energy in eV"
        )
    result.table[head] = dict(named)
    result.origin[head] = "given"
    result.messages.append(f"E0 of head {head!r}: given{_listed(named, elements)}")


def _use_nothing(result: References, head: str, elements: Sequence[int]) -> None:
    result.table[head] = dict.fromkeys(map(int, elements), 0.0)
    result.origin[head] = "none"
    result.messages.append(f"E0 of head {head!r}: zero, since it has no labels")


def _listed(table: Mapping[int, float], elements: Sequence[int]) -> str:
    shown = ", ".join(f"{symbol(z)} {table[z]:.6g}" for z in elements if z in table)
    return f" (eV: {shown})"


def _use_frames(
    result: References,
    sample: Sample,
    elements: Sequence[int],
    own: AtomEnergies,
    outside: Mapping[int, float],
) -> set[int]:
    """Combine isolated atoms and least squares; return the rows that gave an E0."""
    frames, table, head = sample.frames, sample.table, sample.head
    rows = {r for r in own.rows if int(frames[r].numbers[0]) not in outside}
    known = own.energies | dict(outside)
    values = dict(known)
    missing = [int(z) for z in elements if int(z) not in known]
    result.origin[head] = "isolated atoms" if known else "least squares"
    if missing:
        fitted, remark = least_squares(sample, missing, known)
        values |= fitted
        if known:
            result.origin[head] = "isolated atoms and least squares"
        if remark:
            result.deficient.append(head)
            result.messages.append(f"E0 of head {head!r}: {remark}")
    result.table[head] = values
    labeled = table.counts[head]["energy"]
    result.messages.append(
        f"E0 of head {head!r}: {result.origin[head]}{_listed(values, elements)}; of "
        f"{len(frames)} frames {len(rows)} taken as E0, {labeled - len(rows)} used, "
        f"{len(frames) - labeled} skipped (no energy)"
    )
    return rows


def least_squares(
    sample: Sample, missing: Sequence[int], known: Mapping[int, float]
) -> tuple[dict[int, float], str | None]:
    """Fit E0 of some elements, the others being known.

    Args:
        sample: Frames and energies.
        missing: Atomic numbers to fit.
        known: E0 of other elements in eV.

    Returns:
        E0 in eV, and a sentence when the solution is not the only one.
    """
    rows, targets = [], []
    for atoms, labels in zip(sample.frames, sample.table.labels, strict=True):
        energy = labels[sample.head].energy
        if energy is None:
            continue
        numbers = atoms.numbers.tolist()
        rest = energy - sum(known.get(z, 0.0) for z in numbers)
        rows.append([numbers.count(z) / len(numbers) for z in missing])
        targets.append(rest / len(numbers))
    if not rows:
        return dict.fromkeys(missing, 0.0), "no energies to fit, so E0 is zero"
    solution, _, rank, _ = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)
    values = {z: float(value) for z, value in zip(missing, solution, strict=True)}
    if rank == len(missing):
        return values, None
    names = ", ".join(symbol(z) for z in missing)
    return values, (
        f"the compositions fix only {rank} of {len(missing)} energies ({names}); the "
        "solution of smallest norm is used; give isolated atoms for true ones"
    )
