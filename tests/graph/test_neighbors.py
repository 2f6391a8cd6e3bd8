from itertools import product

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.neighborlist import primitive_neighbor_list
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnforce.errors import GeometryError
from gnnforce.graph.neighbors import fold_positions, neighbor_list
from gnnforce.testing.systems import argon_grid, copper, water

OPEN = np.zeros(3, bool)
PERIODIC = np.ones(3, bool)
NO_CELL = np.zeros((3, 3))


def by_hand(positions, cell, pbc, cutoff):
    """Every edge, found by trying every image that could be near enough."""
    vectors = cell[pbc]
    dual = np.linalg.pinv(vectors)  # (3, n_periodic)
    coordinates = positions @ dual
    spread = np.ptp(coordinates, axis=0) if len(vectors) else np.zeros(0)
    reach = np.ceil(cutoff * np.linalg.norm(dual, axis=0) + spread).astype(int)
    found = set()
    for steps in product(*(range(-n, n + 1) for n in reach)):
        shift = np.zeros(3, int)
        shift[pbc] = steps
        for i, j in product(range(len(positions)), repeat=2):
            vector = positions[j] + shift @ np.where(pbc[:, None], cell, 0) - positions[i]
            if np.linalg.norm(vector) < cutoff and (i != j or any(steps)):
                found.add((j, i, *shift.tolist()))
    return found


def as_set(edges):
    rows = np.column_stack([edges.source, edges.target, edges.shifts]).tolist()
    assert len(rows) == len(set(map(tuple, rows))), "an edge occurs twice"
    return set(map(tuple, rows))


def list_of(atoms: Atoms, cutoff: float):
    return neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, cutoff)


def random_structure(seed: int, n_atoms: int):
    """Positions in and far outside of a skewed, rotated cell."""
    rng = np.random.default_rng(seed)
    cell = np.diag(rng.uniform(1.8, 5.0, 3))
    cell[np.tril_indices(3, -1)] = rng.uniform(-2.5, 2.5, 3)
    cell = cell @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    positions = rng.uniform(-1, 2, (n_atoms, 3)) @ cell
    return positions, cell


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    n_atoms=st.integers(1, 5),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    cutoff=st.floats(1.0, 4.0),
)
@example(seed=1, n_atoms=3, pbc=(True, True, True), cutoff=4.0)
def test_random_cells_of_any_periodicity(seed, n_atoms, pbc, cutoff):
    positions, cell = random_structure(seed, n_atoms)
    periodic = np.array(pbc)
    edges = neighbor_list(positions, cell, periodic, cutoff)
    assert as_set(edges) == by_hand(positions, cell, periodic, cutoff)
    target, source, shifts = primitive_neighbor_list(
        "ijS", periodic, cell, positions, cutoff
    )
    rows = np.column_stack([source, target, shifts]).tolist()
    assert as_set(edges) == set(map(tuple, rows))


def test_edges_are_sorted_and_go_both_ways():
    positions, cell = random_structure(5, 6)
    edges = neighbor_list(positions, cell, PERIODIC, 4.0)
    rows = np.column_stack([edges.target, edges.source, edges.shifts]).tolist()
    assert len(rows) > 100
    assert rows == sorted(rows)
    back = {(i, j, -a, -b, -c) for j, i, a, b, c in as_set(edges)}
    assert as_set(edges) == back
    assert all(array.dtype == np.int64 for array in edges)


SILICON = Atoms("Si", cell=[[3, 0, 0], [2.9, 1, 0], [0, 0, 8]], pbc=True)
CHAIN = Atoms("H", cell=[2, 10, 10], pbc=[True, False, False])


@pytest.mark.parametrize(
    ("atoms", "cutoff", "count"),
    [(copper(), 5.0, 42), (SILICON, 4.0, 16), (CHAIN, 4.5, 4), (argon_grid(), 5.0, 6818)],
    ids=["fcc", "skewed", "chain", "grid"],
)
def test_counts(atoms, cutoff, count):
    """C06 and C11: images beyond the nearest cells, and no cap on neighbors."""
    edges = list_of(atoms, cutoff)
    assert len(edges.source) == count
    if len(atoms) == 125:
        neighbors = np.bincount(edges.target)
        assert (neighbors[62], neighbors[0]) == (116, 28)


def test_lists_do_not_depend_on_the_order_of_atoms():
    grid = argon_grid()
    order = np.random.default_rng(0).permutation(125)
    edges = list_of(grid[order], 5.0)
    again = {
        (order[j], order[i]) for j, i in zip(edges.source, edges.target, strict=True)
    }
    assert again == {(j, i) for j, i, *_ in as_set(list_of(grid, 5.0))}


@pytest.mark.parametrize(
    "first", [[0.1, 0, 0], [28.1, 0, 0], [-399.9, 800, 12], [4e5 + 0.1, 0, 0]]
)
def test_wrapped_and_unwrapped_positions(first):
    """C07: two edges of 0.2 Angstrom, wherever the image of the first atom is."""
    positions, cell = np.array([first, [3.9, 0, 0]]), 4.0 * np.eye(3)
    before = positions.tobytes(), cell.tobytes()
    edges = neighbor_list(positions, cell, PERIODIC, 3.0)
    vectors = positions[edges.source] + edges.shifts @ cell - positions[edges.target]
    np.testing.assert_allclose(sorted(vectors[:, 0]), [-0.2, 0.2], atol=1e-9)
    assert (positions.tobytes(), cell.tobytes()) == before


@pytest.mark.parametrize("cutoff", [2.5, 3.0, 5.0, 1.1])
def test_a_pair_exactly_at_the_cutoff_is_outside(cutoff):
    pair = np.array([[0, 0, 0], [0, cutoff, 0]])
    assert len(neighbor_list(pair, NO_CELL, OPEN, cutoff).source) == 0
    nearer = np.nextafter(cutoff, 0)
    assert len(neighbor_list(pair, NO_CELL, OPEN, np.nextafter(cutoff, 9)).source) == 2
    assert len(neighbor_list(pair * nearer / cutoff, NO_CELL, OPEN, cutoff).source) == 2
    box = cutoff * np.eye(3)  # its own images
    assert len(neighbor_list(pair[:1], box, PERIODIC, cutoff).source) == 0


@pytest.mark.parametrize(
    "cell", [NO_CELL, np.eye(3), 50 * np.eye(3), np.eye(3)[[1, 0, 2]]]
)
def test_a_cell_without_periodicity_plays_no_role(cell):
    """C09."""
    edges = neighbor_list(np.array([[0, 0, 0], [0, 0, 1.5]]), cell, OPEN, 5.0)
    assert edges.source.tolist() == [1, 0]
    assert not edges.shifts.any()


@pytest.mark.parametrize("missing", [[0, 0, 0], [7, 8, 9]])
def test_lattice_vectors_of_open_directions_may_miss(missing):
    cell = np.array([[2.5, 0, 0], [0.5, 2.5, 0], missing], float)
    pbc = np.array([True, True, False])
    positions = np.array([[0, 0, 0], [1, 1, 9.5], [1, 1, 11]])
    edges = neighbor_list(positions, cell, pbc, 3.0)
    assert as_set(edges) == by_hand(positions, cell, pbc, 3.0)
    assert not edges.shifts[:, 2].any()


@pytest.mark.parametrize("offset", [0, 5000, 1e6, -9e8])
def test_the_origin_does_not_matter(offset):
    """C10, and no search box as large as the coordinates."""
    moved = water().positions + np.array([0, offset, 0])
    assert len(neighbor_list(moved, NO_CELL, OPEN, 5.0).source) == 6


def test_fragments_far_apart():
    pair = np.array([[0, 0, 0], [0, 0, 0.74]])
    near, far = np.array([[5.0, 0, 0], [3e8, -1e8, 2e8]])
    three = np.vstack([pair, pair + far, pair + near])
    edges = neighbor_list(three, NO_CELL, OPEN, 2.0)
    assert as_set(edges) == {
        (j, i, 0, 0, 0) for j, i in pairs(0, 1) | pairs(2, 3) | pairs(4, 5)
    }
    slab = np.vstack([pair, pair + np.array([0.4, 0.3, 7e8])])
    both = neighbor_list(slab, 3 * np.eye(3), np.array([True, True, False]), 2.9)
    assert len(both.source) == 4


def pairs(i, j):
    return {(i, j), (j, i)}


def test_no_atoms():
    for cell, pbc in ((NO_CELL, OPEN), (3 * np.eye(3), PERIODIC)):
        edges = neighbor_list(np.zeros((0, 3)), cell, pbc, 5.0)
        assert edges.source.shape == edges.target.shape == (0,)
        assert edges.shifts.shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": [[0, 0, 0], [0, np.nan, 1]]}, "position of atom 1 is not finite"),
        ({"positions": [[0, 0, -np.inf], [0, 0, 1]]}, "position of atom 0 is not finite"),
        ({"positions": [[0, 0, 0], [0, 0, 1e10]]}, "atom 1 is at .*blow up"),
        ({"positions": [[0, 0, 0], [0, 0, 9e-5]]}, "atoms 0 and 1 are 9.0e-05 Angstrom"),
        ({"positions": [[0, 0, 0], [0, 0, 0]]}, "atoms 0 and 1 are 0.0e"),
        ({"cell": NO_CELL, "pbc": PERIODIC}, r"pbc is \[True, True, True\] but the cell"),
        ({"cell": np.diag([4.0, 4, 0]), "pbc": PERIODIC}, "does not span"),
        ({"cell": [[4, 0, 0], [0, 4, 0], [4, 4, 0]], "pbc": PERIODIC}, "does not span"),
        ({"cell": [[1, 1, 0], [2, 2, 0], [0, 0, 3]], "pbc": [1, 1, 0]}, "does not span"),
        ({"cell": np.diag([4, 4, np.nan])}, "cell is not finite"),
        ({"cutoff": 0.0}, "cutoff must be a positive number"),
        ({"cutoff": -1.0}, "cutoff must be a positive number"),
        ({"cutoff": np.nan}, "cutoff must be a positive number"),
        ({"cutoff": np.inf}, "cutoff must be a positive number"),
    ],
)
def test_what_is_no_structure_is_refused(changes, message):
    given = {"positions": [[0, 0, 0], [0, 0, 1]], "cell": NO_CELL, "pbc": OPEN}
    given |= {"cutoff": 3.0} | changes
    with pytest.raises(GeometryError, match=message):
        neighbor_list(
            np.array(given["positions"], float),
            np.array(given["cell"], float),
            np.array(given["pbc"], bool),
            given["cutoff"],
        )


def test_folding_keeps_distances_to_images():
    atoms = bulk("Si", "diamond", a=5.4).repeat(2)
    atoms.positions += (
        np.random.default_rng(0).integers(-9, 9, (16, 3)) @ atoms.cell.array
    )
    before = atoms.positions.copy()
    folded = fold_positions(atoms.positions, atoms.cell.array, atoms.pbc)
    np.testing.assert_array_equal(atoms.positions, before)
    np.testing.assert_allclose(folded.mean(axis=0), 0, atol=1e-12)
    assert np.abs(folded).max() < np.abs(atoms.cell.array).sum()
    other = atoms.copy()
    other.positions = folded
    np.testing.assert_allclose(
        other.get_all_distances(mic=True), atoms.get_all_distances(mic=True), atol=1e-9
    )
    with pytest.raises(GeometryError, match="does not span"):
        fold_positions(before, NO_CELL, PERIODIC)
