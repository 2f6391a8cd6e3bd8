import itertools

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.neighborlist import neighbor_list as ase_neighbor_list
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnforce.errors import GeometryError
from gnnforce.graph.neighbors import fold_positions, neighbor_list
from gnnforce.testing.systems import argon_grid, copper


def edges_of(atoms, cutoff):
    return neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, cutoff)


def as_set(edges):
    return set(zip(edges.source, edges.target, map(tuple, edges.shifts), strict=True))


def brute_force(positions, cell, pbc, cutoff, reach=6):
    """Every image up to ``reach`` cells around the nearest one."""
    vectors = cell[pbc]
    found = set()
    for i, j in np.ndindex(len(positions), len(positions)):
        gap = positions[j] - positions[i]
        base = np.zeros(len(vectors), int)
        if len(vectors):
            base = np.linalg.lstsq(vectors.T, -gap, rcond=None)[0].round().astype(int)
        for step in itertools.product(range(-reach, reach + 1), repeat=len(vectors)):
            shift = base + np.array(step, int)
            length = np.linalg.norm(gap + shift @ vectors)
            if length < cutoff and not (i == j and not shift.any()):
                whole = np.zeros(3, int)
                whole[pbc] = shift
                found.add((j, i, tuple(whole)))
    return found


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    n_atoms=st.integers(1, 5),
    missing=st.booleans(),
)
def test_against_brute_force(seed, pbc, n_atoms, missing):
    rng = np.random.default_rng(seed)
    pbc = np.array(pbc)
    cell = np.diag(rng.uniform(3, 6, 3)) + rng.uniform(-0.8, 0.8, (3, 3))
    if missing:
        cell[~pbc] = 0.0
    positions = rng.uniform(-15, 15, (n_atoms, 3))
    edges = neighbor_list(positions, cell, pbc, 4.0)
    assert as_set(edges) == brute_force(positions, cell, pbc, 4.0, reach=4)
    vectors = positions[edges.source] + edges.shifts @ cell - positions[edges.target]
    assert (np.linalg.norm(vectors, axis=1) < 4.0).all()


@pytest.mark.parametrize(
    "pbc", [(True, True, True), (True, False, True), (False, True, False)]
)
def test_against_ase(pbc):
    atoms = Atoms("Cu12", np.random.default_rng(1).uniform(-4, 12, (12, 3)), pbc=pbc)
    atoms.set_cell([[5, 0.3, 0], [2.5, 5, 0], [0.2, 0.1, 6]])
    target, source, shifts = ase_neighbor_list("ijS", atoms, 4.5)
    expected = set(zip(source, target, map(tuple, shifts), strict=True))
    assert as_set(edges_of(atoms, 4.5)) == expected


def test_cells_smaller_than_the_cutoff():  # C06
    skewed = Atoms("Si", cell=[[3, 0, 0], [2.9, 1, 0], [0, 0, 8]], pbc=True)
    chain = Atoms("H", cell=[2, 10, 10], pbc=[True, False, False])
    assert len(edges_of(copper(), 5.0).source) == 42
    assert len(edges_of(skewed, 4.0).source) == 16
    edges = edges_of(chain, 4.5)
    assert sorted(edges.shifts[:, 0]) == [-2, -1, 1, 2]


def test_no_cap_on_neighbors():  # C11
    edges = edges_of(argon_grid(), 5.0)
    counts = np.bincount(edges.target)
    assert len(edges.source) == 6818
    assert (counts[62], counts[0]) == (116, 28)


@pytest.mark.parametrize("shift", [(0, 0, 0), (28, 0, 0), (-400, 800, 12)])
def test_atoms_far_outside_the_cell(shift):  # C07
    atoms = Atoms("Ar2", [[0.1, 0, 0], [3.9, 0, 0]], cell=[4, 4, 4], pbc=True)
    atoms.positions[0] += shift
    before = atoms.positions.tobytes()
    edges = edges_of(atoms, 3.0)
    assert atoms.positions.tobytes() == before
    vectors = atoms.positions[edges.source] + edges.shifts @ atoms.cell.array
    lengths = np.linalg.norm(vectors - atoms.positions[edges.target], axis=1)
    np.testing.assert_allclose(lengths, [0.2, 0.2], atol=1e-9)


@pytest.mark.parametrize("shift", [(0, 0, 0), (5000, 0, 0), (0, -1e6, 0)])
def test_anywhere_in_space(shift):  # C10
    atoms = molecule("H2O")
    atoms.positions += shift
    assert len(edges_of(atoms, 5.0).source) == 6


def test_fragments_a_million_angstrom_apart():
    positions = np.array([[0, 0, 0], [1, 0, 0], [1e6, 0, 0], [1e6, 1, 0.0]])
    for pbc in (np.zeros(3, bool), np.array([False, False, True])):
        edges = neighbor_list(positions, np.diag([1.0, 1, 50]), pbc, 5.0)
        assert sorted(zip(edges.source, edges.target, strict=True)) == [
            (0, 1), (1, 0), (2, 3), (3, 2)
        ]  # fmt: skip


@pytest.mark.parametrize(
    "cell", [np.zeros((3, 3)), np.eye(3), 50 * np.eye(3), np.eye(3)[[1, 0, 2]]]
)
def test_cell_of_open_structures_plays_no_role(cell):  # C09
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.5]], cell=cell, pbc=False)
    edges = edges_of(atoms, 5.0)
    assert len(edges.source) == 2
    assert not edges.shifts.any()


def test_pair_at_the_cutoff_is_outside():
    for distance, n_edges in ((3.0, 0), (3.0 - 1e-12, 2)):
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, distance]])
        assert len(edges_of(atoms, 3.0).source) == n_edges


def test_sorted_by_target_with_integer_type():
    edges = edges_of(argon_grid(3), 3.0)
    assert (np.diff(edges.target) >= 0).all()
    lone = edges_of(Atoms("H"), 5.0)  # C01
    assert lone.source.dtype == lone.target.dtype == np.int64
    assert lone.source.shape == (0,)
    assert lone.shifts.shape == (0, 3)
    assert len(edges_of(Atoms(), 5.0).source) == 0


@pytest.mark.parametrize(
    ("positions", "cell", "pbc", "cutoff", "message"),
    [
        ([[0, 0, np.nan]], np.eye(3), False, 5.0, "position of atom 0 is not finite"),
        ([[0, 0, 1e12]], np.eye(3), False, 5.0, "atom 0 .* blow up"),
        ([[0, 0, 0]], np.zeros((3, 3)), True, 5.0, "pbc is .* cell"),
        ([[0, 0, 0]], [[1, 0, 0], [2, 0, 0], [0, 0, 1]], True, 5.0, "does not span"),
        ([[0, 0, 0]], np.full((3, 3), np.inf), False, 5.0, "cell is not finite"),
        ([[0, 0, 0]], np.eye(3), False, 0.0, "cutoff"),
        ([[0, 0, 0]], np.eye(3), False, np.nan, "cutoff"),
        ([[0, 0, 0], [3, 3, 3], [0, 0, 1e-5]], np.eye(3), False, 5.0, "atoms 0 and 2"),
        ([[0, 0, 0], [5, 0, 0]], 5 * np.eye(3), True, 2.0, "atoms 0 and 1"),
    ],
)
def test_refused(positions, cell, pbc, cutoff, message):
    with pytest.raises(GeometryError, match=message):
        neighbor_list(
            np.array(positions, float), np.array(cell, float), np.array([pbc] * 3), cutoff
        )


def test_folding_keeps_the_open_direction():
    cell, pbc = np.diag([2.0, 2, 2]), np.array([True, False, True])
    positions = np.array([[5.0, 7.0, -3.0], [0.5, 0.0, 0.5]])
    folded = fold_positions(positions, cell, pbc)
    np.testing.assert_allclose(folded.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(folded[0] - folded[1], [0.5, 7.0, 0.5])
