"""Small structures that have broken force fields before."""

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from gnnforce.errors import UserError


def water() -> Atoms:
    """Return one water molecule without a cell."""
    return Atoms("OHH", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])


def five_elements(periodic: bool = False) -> Atoms:
    """Return H C N O Si in a low-symmetry arrangement, free or in a small cell."""
    positions = [
        [0, 0, 0],
        [1.1, 0.1, 0],
        [0.2, 1.3, 0.3],
        [1.5, 1.2, 0.9],
        [2.2, 0.3, 1.1],
    ]
    atoms = Atoms("HCNOSi", positions)
    if periodic:
        atoms.set_cell([4.0, 4.2, 4.4])
        atoms.pbc = True
    return atoms


def skewed_pair() -> Atoms:
    """Return two copper atoms in a skewed cell smaller than a usual cutoff."""
    return Atoms(
        "Cu2",
        [[0, 0, 0], [1.9, 2.1, 1.8]],
        cell=[[4, 0, 0], [0.3, 4, 0], [0.1, 0.2, 4]],
        pbc=True,
    )


def copper(lattice_constant: float = 3.6) -> Atoms:
    """Return the primitive cell of fcc copper: one atom, many images."""
    half = lattice_constant / 2
    cell = [[0, half, half], [half, 0, half], [half, half, 0]]
    return Atoms("Cu", [[0, 0, 0]], cell=cell, pbc=True)


def argon_grid(n: int = 5, spacing: float = 1.6) -> Atoms:
    """Return an open ``n x n x n`` grid of argon: more neighbors than usual limits."""
    points = np.array(list(np.ndindex(n, n, n))) * spacing
    return Atoms(f"Ar{n**3}", points)


def cluster(elements: Sequence[int], n_atoms: int = 6, seed: int = 0) -> Atoms:
    """Return an open random structure in which every element given occurs.

    Args:
        elements: Atomic numbers, at most ``n_atoms`` of them are used.
        n_atoms: Number of atoms, at most 27.
        seed: Of the generator, which is the function's own.

    Returns:
        Atoms about 1.5 Angstrom apart, none closer than 1.1.

    Raises:
        UserError: For no elements, or a number of atoms out of range.

    Example:
        >>> cluster([1, 8], n_atoms=4).get_chemical_formula()
        'H2O2'
    """
    if not elements or not 1 <= n_atoms <= 27:
        raise UserError("a cluster needs elements and 1 to 27 atoms")
    rng = np.random.default_rng(seed)
    sites = np.array(list(np.ndindex(3, 3, 3)))
    # sites near the center first, so that the cluster is compact
    sites = sites[np.argsort(np.abs(sites - 1).sum(axis=1), kind="stable")][:n_atoms]
    positions = 1.5 * sites + rng.uniform(-0.2, 0.2, (n_atoms, 3))
    numbers = np.resize(np.array(elements), n_atoms)
    return Atoms(numbers=numbers, positions=positions)


def crystal(elements: Sequence[int], n_atoms: int = 3, seed: int = 0) -> Atoms:
    """Return a cluster in a skewed periodic cell with room for it.

    Args:
        elements: Atomic numbers.
        n_atoms: Number of atoms, at most 27.
        seed: Of the generator, which is the function's own.

    Returns:
        A structure with three periodic directions and no symmetry.
    """
    atoms = cluster(elements, n_atoms, seed)
    size = np.ptp(atoms.positions, axis=0) + 1.7
    cell = np.diag(size)
    cell[1, 0], cell[2, 0], cell[2, 1] = 0.3, 0.1, 0.2
    atoms.set_cell(cell)
    atoms.pbc = True
    return atoms
