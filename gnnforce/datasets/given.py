"""Energies of isolated atoms that a user gives, in whatever spelling."""

from collections.abc import Mapping, Sequence

import numpy as np

from gnnforce.datasets.elements import atomic_number, symbol
from gnnforce.errors import ConfigError


def given_references(
    given: Mapping[object, object] | None, heads: Sequence[str], messages: list[str]
) -> dict[str, dict[int, float]]:
    """Turn given energies into ``{head: {atomic number: energy}}``.

    Args:
        given: ``{element: energy}`` for all heads, ``{head: {element: energy}}``, or None.
        heads: Heads of the model.
        messages: A line is added for every head that is not in the model.

    Returns:
        Tables of the heads that are named.

    Raises:
        ConfigError: For mixed forms, words that are no element, values that are no
            number, an element named twice with different energies.

    Example:
        >>> given_references({"H": -13.6, 8: -432.0}, ["energy"], [])
        {'energy': {1: -13.6, 8: -432.0}}
    """
    if not given:
        return {}
    nested = [isinstance(value, Mapping) for value in given.values()]
    if not any(nested):
        table = _one_table(given, "references")
        return {head: dict(table) for head in heads}
    if not all(nested):
        raise ConfigError(
            "references are {element: energy} for all heads or {head: {element: energy}}, "
            "not a mixture"
        )
    unknown = [str(head) for head in given if head not in heads]
    if unknown:
        messages.append(
            f"references of {', '.join(map(repr, unknown))} are not used: the heads are "
            f"{', '.join(heads)}"
        )
    return {
        head: _one_table(value, f"references of head {head!r}")
        for head, value in ((head, given[head]) for head in heads if head in given)
        if isinstance(value, Mapping)
    }


def _one_table(given: Mapping[object, object], what: str) -> dict[int, float]:
    table: dict[int, float] = {}
    for word, value in given.items():
        number = atomic_number(word)
        try:
            energy = float(value)  # type: ignore[arg-type]  # anything: refused below
        except (TypeError, ValueError):
            energy = np.nan
        if not np.isfinite(energy) or isinstance(value, bool):
            raise ConfigError(
                f"{what}: the energy of {word} is {value!r}, no number in eV"
            )
        if table.get(number, energy) != energy:
            raise ConfigError(f"{what}: {symbol(number)} is given twice, and differently")
        table[number] = energy
    return table
