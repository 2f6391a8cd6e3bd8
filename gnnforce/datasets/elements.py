"""Elements by symbol, number or number as text."""

from collections.abc import Iterable, Sequence

from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols

from gnnforce.errors import ConfigError, UnknownElementError, did_you_mean


def symbol(number: int) -> str:
    """Return the symbol of an atomic number, or the number where there is none.

    Example:
        >>> symbol(14), symbol(130)
        ('Si', 'Z=130')
    """
    known = 0 <= number < len(chemical_symbols)
    return str(chemical_symbols[number]) if known else f"Z={number}"


def atomic_number(word: object) -> int:
    """Return the atomic number that a symbol, a number or a text of digits stands for.

    Raises:
        ConfigError: For what is no element.

    Example:
        >>> atomic_number("O"), atomic_number(8), atomic_number("8")
        (8, 8, 8)
    """
    text = str(word).strip()
    number = int(text) if text.isdigit() else atomic_numbers.get(text, 0)
    if isinstance(word, bool) or not 1 <= number < len(chemical_symbols):
        raise ConfigError(f"{word!r} is no element." + did_you_mean(text, atomic_numbers))
    return int(number)


def check_elements(frames: Sequence[Atoms], elements: Iterable[int]) -> None:
    """Raise when a frame holds an element outside the given ones.

    Args:
        frames: The structures.
        elements: Known atomic numbers.

    Raises:
        UnknownElementError: Names frame, element and the known elements.
    """
    known = {int(z) for z in elements}
    for number, atoms in enumerate(frames):
        unknown = sorted({int(z) for z in atoms.numbers} - known)
        if unknown:
            names = ", ".join(symbol(z) for z in unknown)
            there = ", ".join(symbol(z) for z in sorted(known))
            raise UnknownElementError(
                f"frame {number} holds {names}, which the model does not know; it knows "
                f"{there}"
            )
