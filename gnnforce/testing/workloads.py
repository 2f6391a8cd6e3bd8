"""Structures that benchmarks run on, built from numbers in this file.

Nothing is read from disk, so that an installed package measures the same as a clone.
"""

from collections.abc import Callable

import numpy as np
from ase import Atoms
from ase.build import bulk

from gnnforce.errors import UserError, did_you_mean

# Planar enol form from standard bond lengths, Angstrom; rows follow the symbols.
_ENOL = "C5O2H8"
_ENOL_POSITIONS = (
    (-2.49, 0.14, 0.0),
    (-1.22, -0.68, 0.0),
    (0.0, 0.0, 0.0),
    (1.22, -0.68, 0.0),
    (2.49, 0.14, 0.0),
    (-1.24, -1.97, 0.0),
    (1.24, -1.97, 0.0),
    (0.26, -2.32, 0.0),
    (0.0, 1.08, 0.0),
    (-2.24, 1.2, 0.0),
    (-3.07, -0.09, 0.89),
    (-3.07, -0.09, -0.89),
    (2.24, 1.2, 0.0),
    (3.07, -0.09, 0.89),
    (3.07, -0.09, -0.89),
)
_DISPLACEMENT = 0.05  # Angstrom, about that of a C-C bond at room temperature


def acetylacetone(n_molecules: int = 1) -> list[Atoms]:
    """Return molecules of acetylacetone (AcAc, 15 atoms), no two the same.

    Positions are those of the enol form plus normally distributed displacements of
    0.05 Angstrom from a fixed seed.

    Example:
        >>> [molecule] = acetylacetone()
        >>> molecule.get_chemical_formula()
        'C5H8O2'
    """
    rng = np.random.default_rng(0)
    shifts = rng.normal(scale=_DISPLACEMENT, size=(n_molecules, len(_ENOL_POSITIONS), 3))
    return [Atoms(_ENOL, np.array(_ENOL_POSITIONS) + shift) for shift in shifts]


def silicon(repeats: tuple[int, int, int] = (5, 5, 5)) -> Atoms:
    """Return periodic silicon: diamond cells of eight atoms, slightly displaced.

    Example:
        >>> len(silicon())
        1000
    """
    atoms: Atoms = bulk("Si", "diamond", a=5.43, cubic=True).repeat(repeats)
    rng = np.random.default_rng(0)
    atoms.positions += rng.normal(scale=_DISPLACEMENT, size=(len(atoms), 3))
    return atoms


WORKLOADS: dict[str, Callable[[], list[Atoms]]] = {
    "molecule": acetylacetone,
    "batch": lambda: acetylacetone(8),
    "molecules": lambda: acetylacetone(32),
    "periodic": lambda: [silicon()],
    "large": lambda: [silicon((5, 5, 25))],
}


def check_workload(name: str) -> str:
    """Return the name when there is such a workload.

    Raises:
        UserError: For another name.

    Example:
        >>> check_workload("large")
        'large'
    """
    if name not in WORKLOADS:
        raise UserError(
            f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}."
            + did_you_mean(name, WORKLOADS)
        )
    return name


def workload(name: str) -> list[Atoms]:
    """Return the structures of a workload.

    Args:
        name: ``molecule``, ``batch`` (8), ``molecules`` (32 molecules of AcAc),
            ``periodic`` (1,000 atoms of silicon) or ``large`` (5,000).

    Raises:
        UserError: For another name.

    Example:
        >>> len(workload("molecules"))
        32
    """
    return WORKLOADS[check_workload(name)]()
