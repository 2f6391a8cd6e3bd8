"""Unit words of data files, and their factors to eV and Angstrom."""

from collections.abc import Mapping

from ase import units

from gnnforce.errors import DataError, did_you_mean

ENERGY_UNITS: Mapping[str, float] = {
    "eV": 1.0,
    "meV": 1e-3,
    "Hartree": units.Hartree,
    "Ha": units.Hartree,
    "Eh": units.Hartree,
    "Rydberg": units.Rydberg,
    "Ry": units.Rydberg,
    "kcal/mol": units.kcal / units.mol,
    "kJ/mol": units.kJ / units.mol,
}
LENGTH_UNITS: Mapping[str, float] = {
    "Ang": 1.0,
    "Angstrom": 1.0,
    "A": 1.0,
    "Å": 1.0,
    "Bohr": units.Bohr,
    "a0": units.Bohr,
    "nm": 10.0,
}
PRESSURE_UNITS: Mapping[str, float] = {
    "eV/Ang^3": 1.0,
    "GPa": units.GPa,
    "kbar": 0.1 * units.GPa,
    "bar": 1e-4 * units.GPa,
    "Pa": units.Pascal,
}


def energy_factor(word: str) -> float:
    """Return what one unit of energy is in eV.

    Args:
        word: A unit of ``ENERGY_UNITS``, in upper or lower case.

    Raises:
        DataError: For an unknown word.

    Example:
        >>> f"{energy_factor('kcal/mol'):.8f}"
        '0.04336410'
    """
    return _factor(word, ENERGY_UNITS, "energy")


def length_factor(word: str) -> float:
    """Return what one unit of length is in Angstrom.

    Args:
        word: A unit of ``LENGTH_UNITS``, in upper or lower case.

    Raises:
        DataError: For an unknown word.

    Example:
        >>> f"{length_factor('bohr'):.6f}"
        '0.529177'
    """
    return _factor(word, LENGTH_UNITS, "length")


def pressure_factor(word: str) -> float:
    """Return what one unit of stress is in eV/Angstrom^3.

    Args:
        word: A unit of ``PRESSURE_UNITS``, in upper or lower case.

    Raises:
        DataError: For an unknown word.

    Example:
        >>> f"{pressure_factor('GPa'):.8f}"
        '0.00624151'
    """
    return _factor(word, PRESSURE_UNITS, "stress")


def is_energy_unit(word: str) -> bool:
    """Tell whether a word is a unit of energy."""
    return word.strip().lower() in {name.lower() for name in ENERGY_UNITS}


def is_length_unit(word: str) -> bool:
    """Tell whether a word is a unit of length."""
    return word.strip().lower() in {name.lower() for name in LENGTH_UNITS}


def _factor(word: str, table: Mapping[str, float], kind: str) -> float:
    known = {name.lower(): factor for name, factor in table.items()}
    try:
        return known[word.strip().lower()]
    except KeyError:
        raise DataError(
            f"unknown unit of {kind} {word!r}; there are {', '.join(table)}."
            + did_you_mean(word, table)
        ) from None
