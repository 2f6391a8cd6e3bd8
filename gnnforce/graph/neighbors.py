"""Neighbor lists: one function in front of the backend (vesin)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from vesin import NeighborList

from gnnforce.errors import GeometryError

FARTHEST = 1e9  # Angstrom; beyond it neighbors drown in rounding, and the search fails
CLOSEST_PAIR = 1e-4  # Angstrom; below it a distance is a mistake, and 1/r is no number


class Edges(NamedTuple):
    """Directed edges sorted by target.

    Attributes:
        source: Index of the neighbor ``j``, shape ``(n_edges,)``.
        target: Index of the center ``i``, shape ``(n_edges,)``.
        shifts: Whole lattice vectors added to ``j``, shape ``(n_edges, 3)``.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    shifts: NDArray[np.int64]


def neighbor_list(
    positions: NDArray[np.float64],
    cell: NDArray[np.float64],
    pbc: NDArray[np.bool_],
    cutoff: float,
) -> Edges:
    r"""Find every pair closer than the cutoff, in both directions.

    An edge exists when :math:`|r_j + s\,A - r_i| < r_c`, self-images of small cells
    included; a pair exactly at the cutoff is outside. There is no cap on the number
    of neighbors. Lattice vectors of directions that are not periodic play no role.

    Args:
        positions: In Angstrom, shape ``(n_atoms, 3)``; may lie outside the cell.
        cell: Rows ``A`` are lattice vectors in Angstrom, shape ``(3, 3)``.
        pbc: Periodic directions, shape ``(3,)``.
        cutoff: Radius ``r_c`` in Angstrom, larger than zero.

    Returns:
        The edges, sorted by target, then source, then shift.

    Raises:
        GeometryError: Non-finite or absurdly far positions, a periodic direction without a lattice
            vector, periodic lattice vectors in one line or plane, a pair closer than
            1e-4 Angstrom, a cutoff that is not a positive number.

    Example:
        >>> import numpy as np
        >>> box = np.diag([2.0, 10.0, 10.0])
        >>> chain = neighbor_list(np.zeros((1, 3)), box, np.array([1, 0, 0], bool), 4.5)
        >>> chain.shifts[:, 0].tolist()
        [-2, -1, 1, 2]
    """
    _check(positions, cell, pbc, cutoff)
    lattice = _complete_lattice(cell, pbc)
    folded, fold = _fold(positions, lattice, pbc)
    near = _close_gaps(folded, lattice, pbc, cutoff)
    source, target, shifts, distances = _pairs(near, lattice, pbc, cutoff)
    keep = distances < cutoff
    source, target, shifts = source[keep], target[keep], shifts[keep]
    _check_distances(source, target, distances[keep])
    # the list was made for folded positions; the shifts must fit the given ones
    shifts = shifts + fold[source] - fold[target]
    order = np.lexsort((*shifts.T[::-1], source, target))
    return Edges(source[order], target[order], shifts[order])


def _check(
    positions: NDArray[np.float64],
    cell: NDArray[np.float64],
    pbc: NDArray[np.bool_],
    cutoff: float,
) -> None:
    if not (np.isfinite(cutoff) and cutoff > 0):
        raise GeometryError(f"cutoff must be a positive number of Angstrom, not {cutoff}")
    if not np.isfinite(positions).all():
        bad = int(np.argwhere(~np.isfinite(positions).all(axis=1))[0, 0])
        raise GeometryError(f"position of atom {bad} is not finite: {positions[bad]}")
    if len(positions) and np.abs(positions).max() > FARTHEST:
        bad = int(np.abs(positions).max(axis=1).argmax())
        raise GeometryError(
            f"atom {bad} is at {positions[bad]}, more than {FARTHEST:g} Angstrom from the "
            "origin; did the dynamics blow up?"
        )
    if not np.isfinite(cell).all():
        raise GeometryError(f"cell is not finite: {cell.tolist()}")
    vectors = cell[pbc]
    lengths = np.linalg.norm(vectors, axis=1)
    independent = np.linalg.matrix_rank(vectors) == len(vectors) if len(vectors) else True
    if (lengths < 1e-8).any() or not independent:
        raise GeometryError(
            f"pbc is {pbc.tolist()} but the cell {cell.tolist()} does not span those "
            "directions; set atoms.pbc = False for a molecule, or give the cell"
        )


def _complete_lattice(
    cell: NDArray[np.float64], pbc: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Keep periodic vectors; replace the others by unit vectors normal to them."""
    lattice = np.zeros((3, 3))
    lattice[pbc] = cell[pbc]
    missing = np.flatnonzero(~pbc)
    if len(missing):
        # right singular vectors beyond the rank span the orthogonal complement
        normal = np.linalg.svd(lattice)[2][3 - len(missing) :]
        lattice[missing] = normal
    return lattice


def fold_positions(
    positions: NDArray[np.float64], cell: NDArray[np.float64], pbc: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Fold into the cell along periodic directions and put the center at zero.

    Args:
        positions: In Angstrom, shape ``(n_atoms, 3)``.
        cell: Rows are lattice vectors in Angstrom, shape ``(3, 3)``.
        pbc: Periodic directions, shape ``(3,)``.

    Returns:
        A new array, shape ``(n_atoms, 3)``; distances to the nearest image are kept.

    Raises:
        GeometryError: See :func:`neighbor_list`.
    """
    _check(positions, cell, pbc, cutoff=1.0)
    return _fold(positions, _complete_lattice(cell, pbc), pbc)[0]


def _fold(
    positions: NDArray[np.float64], lattice: NDArray[np.float64], pbc: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    fractional = positions @ np.linalg.inv(lattice)
    fold = np.where(pbc, -np.floor(fractional), 0.0)
    folded = positions + fold @ lattice
    if len(folded):
        folded = folded - folded.mean(axis=0)
    return folded, fold.astype(np.int64)


def _close_gaps(
    positions: NDArray[np.float64],
    lattice: NDArray[np.float64],
    pbc: NDArray[np.bool_],
    cutoff: float,
) -> NDArray[np.float64]:
    """Move fragments together along open directions, never to within the cutoff.

    The backend's grid spans all atoms; two fragments far apart would need more cells
    than there are numbers for.
    """
    moved = positions.copy()
    for normal in lattice[~pbc]:  # orthonormal, and normal to the periodic vectors
        along = positions @ normal
        order = np.argsort(along)
        steps = np.diff(along[order])
        surplus = np.maximum(steps - 2 * cutoff, 0).cumsum()
        moved[order[1:]] -= surplus[:, None] * normal
    return moved


def _pairs(
    positions: NDArray[np.float64],
    lattice: NDArray[np.float64],
    pbc: NDArray[np.bool_],
    cutoff: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    if len(positions) == 0:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros((0, 3), np.int64), np.zeros(0)
    # one thread: a list is cheap, and the number of threads is the user's to choose
    search = NeighborList(cutoff=float(cutoff), full_list=True, n_threads=1)
    target, source, shifts, distances = search.compute(
        points=np.ascontiguousarray(positions),
        box=np.ascontiguousarray(lattice),
        periodic=np.ascontiguousarray(pbc),
        quantities="ijSd",
    )
    return (
        source.astype(np.int64),
        target.astype(np.int64),
        shifts.astype(np.int64).reshape(-1, 3),
        distances,
    )


def _check_distances(
    source: NDArray[np.int64], target: NDArray[np.int64], distances: NDArray[np.float64]
) -> None:
    if len(distances) and distances.min() < CLOSEST_PAIR:
        edge = int(distances.argmin())
        first, second = sorted((int(source[edge]), int(target[edge])))
        raise GeometryError(
            f"atoms {first} and {second} are {distances[edge]:.1e} Angstrom apart, "
            f"closer than {CLOSEST_PAIR:g}; remove the duplicate or check the units"
        )
