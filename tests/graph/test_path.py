import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule

from gnnforce.errors import GeometryError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.path import interpolate
from gnnforce.graph.views import edge_vectors

CUTOFF = 3.5


def graph_of(atoms: Atoms, dtype=torch.float64) -> AtomGraph:
    return AtomGraph.from_atoms(atoms, CUTOFF, dtype)


def shaken(atoms: Atoms, seed: int = 0, size: float = 0.2) -> Atoms:
    other = atoms.copy()
    other.positions += np.random.default_rng(seed).normal(0, size, (len(atoms), 3))
    return other


def lengths(graph: AtomGraph) -> torch.Tensor:
    return edge_vectors(graph).norm(dim=1).sort().values


def test_equals_the_graph_of_the_atoms_in_between():
    pairs = [
        (one, shaken(one))
        for one in (molecule("C2H6"), bulk("Si", cubic=True), Atoms("H"), Atoms())
    ]
    first, second = (batch([graph_of(pair[end]) for pair in pairs]) for end in (0, 1))
    t = torch.tensor([0.3, 0.8, 0.5, 0.1])
    got = interpolate(first, second, t, CUTOFF)
    middle = []
    for (one, other), part in zip(pairs, t.double().tolist(), strict=True):
        atoms = one.copy()
        atoms.positions += part * (other.positions - one.positions)
        middle.append(graph_of(atoms))
    expected = batch(middle)
    for name in (
        "numbers",
        "edge_index",
        "edge_shifts",
        "pbc",
        "cell",
        "batch",
        "cutoff",
    ):
        assert torch.equal(got[name], expected[name]), name
    torch.testing.assert_close(got.positions, expected.positions, rtol=0, atol=1e-12)
    assert got.n_graphs == 4


def test_ends():
    first, second = graph_of(molecule("CH4")), graph_of(shaken(molecule("CH4")))
    for t, end in ((0.0, first), (1.0, second)):
        got = interpolate(first, second, torch.tensor([t]), CUTOFF)
        torch.testing.assert_close(got.positions, end.positions, rtol=0, atol=1e-14)
        assert torch.equal(got.edge_index, end.edge_index)


def test_neighbors_that_only_meet_on_the_way_are_found():
    ends = [Atoms("H2", [[0, 0, 0], [x, 1.0, 0]]) for x in (-9.0, 9.0)]
    first, second = map(graph_of, ends)
    assert first.n_edges == second.n_edges == 0  # what a union of both lists would lack
    got = interpolate(first, second, torch.tensor([0.5]), CUTOFF)
    torch.testing.assert_close(lengths(got), torch.ones(2, dtype=torch.float64))


def test_wrapping_does_not_matter():
    one = bulk("Si", cubic=True) * (2, 1, 1)
    one.rattle(0.01, seed=1)
    other = shaken(one)
    wrapped = other.copy()
    wrapped.wrap()
    assert np.abs(wrapped.positions - other.positions).max() > 5
    t = torch.tensor([0.5])
    direct = interpolate(graph_of(one), graph_of(other), t, CUTOFF)
    got = interpolate(graph_of(one), graph_of(wrapped), t, CUTOFF)
    torch.testing.assert_close(got.positions, direct.positions, rtol=0, atol=1e-12)


def test_a_slab_keeps_its_open_direction():
    one = Atoms("H2", [[0, 0, 0], [0, 0, 1.0]], cell=[3, 3, 0], pbc=[True, True, False])
    other = one.copy()
    other.positions[1] = [2.9, 0, 9.0]
    got = interpolate(graph_of(one), graph_of(other), torch.tensor([0.5]), CUTOFF)
    expected = torch.tensor([-0.05, 0.0, 5.0], dtype=torch.float64)
    torch.testing.assert_close(got.positions[1], expected)


def test_dtype_of_the_graphs():
    first = graph_of(molecule("H2O"), torch.float32)
    got = interpolate(first, first, torch.tensor([0.5]), CUTOFF)
    kinds = {name: x.dtype for name, x in got.to_dict().items() if hasattr(x, "dtype")}
    assert kinds["positions"] == kinds["cell"] == kinds["edge_shifts"] == torch.float32
    assert kinds["cutoff"] == torch.float64


def test_refused():
    water, t = molecule("H2O"), torch.tensor([0.5])
    turned, charged = water[[1, 0, 2]], water.copy()
    charged.info["charge"] = 1
    silicon = bulk("Si")
    wider = silicon.copy()
    wider.set_cell(silicon.cell * 1.01)
    for error, one, other in (
        ("numbers of atoms", water, molecule("CH4")),
        ("atomic numbers", water, turned),
        ("charge", water, charged),
        ("cell", silicon, wider),
    ):
        with pytest.raises(GeometryError, match=f"differ in their {error}"):
            interpolate(graph_of(one), graph_of(other), t, CUTOFF)
    both = batch([graph_of(water), graph_of(water)])
    with pytest.raises(GeometryError, match="1 structures at one end and 2"):
        interpolate(graph_of(water), both, t, CUTOFF)
    with pytest.raises(UserError, match=r"shape \(2,\), one part .* not \(1,\)"):
        interpolate(both, both, t, CUTOFF)


def test_atoms_that_meet_are_refused():
    ends = [Atoms("H2", [[0, 0, 0], [x, 0, 0]]) for x in (-1.0, 1.0)]
    with pytest.raises(GeometryError, match="atoms 0 and 1 are"):
        interpolate(*map(graph_of, ends), torch.tensor([0.5]), CUTOFF)
