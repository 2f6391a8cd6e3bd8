"""Every physical quantity once: its name, shape, unit and what it is a derivative of."""

from dataclasses import dataclass
from typing import Literal

from gnnforce.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Quantity:
    """A named physical quantity.

    Attributes:
        name: The one spelling used from file to calculator.
        per: ``"graph"`` (one value a structure) or ``"atom"``.
        rank: Tensor rank of one value: 0 scalar, 1 vector, 2 matrix.
        unit: In units of eV and Angstrom.
        derivative: True when it is a derivative of the energy.
        needs_cell: True when it exists only for structures with a volume.
    """

    name: str
    per: Literal["graph", "atom"]
    rank: int
    unit: str
    derivative: bool = False
    needs_cell: bool = False


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("energy", "graph", 0, "eV"),
        Quantity("energies", "atom", 0, "eV"),
        Quantity("forces", "atom", 1, "eV/Angstrom", derivative=True),
        Quantity("virial", "graph", 2, "eV", derivative=True, needs_cell=True),
        Quantity("stress", "graph", 2, "eV/Angstrom^3", derivative=True, needs_cell=True),
    )
}


def check_quantities(wanted: object) -> tuple[str, ...]:
    """Return the asked names as a tuple, or raise for a name that does not exist.

    Args:
        wanted: Names of quantities; a bare string is an error because it would be
            read letter by letter.

    Returns:
        The names, in the order given and without repeats.

    Raises:
        UserError: For an unknown name.

    Example:
        >>> check_quantities(["energy", "forces", "energy"])
        ('energy', 'forces')
    """
    if isinstance(wanted, str) or not hasattr(wanted, "__iter__"):
        raise UserError(f"wanted must be a list of names like ['energy'], not {wanted!r}")
    names = tuple(dict.fromkeys(str(name) for name in wanted))
    for name in names:
        if name not in QUANTITIES:
            raise UserError(
                f"unknown quantity {name!r}; there are {', '.join(QUANTITIES)}."
                + did_you_mean(name, QUANTITIES)
            )
    return names
