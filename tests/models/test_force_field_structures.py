"""Structures that have broken other packages (lone atoms, odd cells, far origins)."""

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.errors import UnknownElementError
from gnnforce.testing.measure import random_rotation
from gnnforce.testing.systems import argon_grid, copper, water

from .fields import ARCHITECTURES, KINDS, evaluate, graph_of, make_field

H2 = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])
LONE_H = np.array([-10.3, -20.3, -30.3])  # the references of the three heads


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request):
    return make_field(request.param)


@pytest.mark.parametrize("cell", [None, [100, 100, 100]])
@pytest.mark.parametrize("pbc", [False, True])
def test_lone_atom(model, cell, pbc):
    """C01."""
    wanted = ["energy", "forces", "energies"]
    if pbc and cell is None:
        return
    atoms = Atoms("H", cell=cell, pbc=pbc)
    found = evaluate(model, atoms, *wanted, *(["stress"] if pbc else []))
    np.testing.assert_array_equal(found["energy"], LONE_H)
    np.testing.assert_array_equal(found["energies"], LONE_H[:, None])
    np.testing.assert_array_equal(found["forces"], np.zeros((3, 1, 3)))
    if pbc:
        np.testing.assert_array_equal(found["stress"], np.zeros((3, 3, 3)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lone_atoms_have_their_reference_energy_in_every_kind_of_head(architecture):
    model = make_field(architecture, KINDS, repulsion=True)
    references = model.references()
    for number, symbol in ((1, "H"), (14, "Si"), (29, "Cu")):
        expected = [references[name][number] for name in model.outputs.head_of]
        np.testing.assert_array_equal(evaluate(model, Atoms(symbol))["energy"], expected)


def test_some_atoms_without_neighbors(model):
    """C02."""
    pair = evaluate(model, Atoms("H2", [[0, 0, 0], [7, 0, 0]]))
    np.testing.assert_array_equal(pair["energy"], 2 * LONE_H)
    assert not pair["forces"].any()
    molecule = evaluate(model, H2)
    three = Atoms("H3", [[0, 0, 0], [0, 0, 0.74], [0, 0, 20]])
    for order in ([0, 1, 2], [2, 0, 1], [0, 2, 1]):
        found = evaluate(model, three[order])
        np.testing.assert_allclose(
            found["energy"], molecule["energy"] + LONE_H, atol=1e-8
        )
        forces = found["forces"][:, np.argsort(order)]
        np.testing.assert_allclose(forces[:, :2], molecule["forces"], atol=1e-12)
        assert not forces[:, 2].any()
    assert np.abs(molecule["forces"]).max() > 1e-2


@pytest.mark.parametrize("order", ["HL", "LH", "LL", "L", "LHL"])
def test_edgeless_graphs_in_a_batch(model, order):
    """C03."""
    structures = [{"H": H2, "L": Atoms("H")}[letter] for letter in order]
    out = model.predict(graph_of(*structures), ["energy", "forces"])
    singles = [evaluate(model, atoms) for atoms in structures]
    energy = np.stack([one["energy"] for one in singles], axis=1)
    forces = np.concatenate([one["forces"] for one in singles], axis=1)
    np.testing.assert_allclose(out["energy"], energy, atol=1e-12)
    np.testing.assert_allclose(out["forces"], forces, atol=1e-12)


SKEWED = Atoms("Si", cell=[[3, 0, 0], [2.9, 1, 0], [0, 0, 8]], pbc=True)
CHAIN = Atoms("H", cell=[2, 10, 10], pbc=[True, False, False])


@pytest.mark.parametrize(
    "atoms", [copper(), SKEWED, CHAIN], ids=["fcc", "skewed", "chain"]
)
def test_cells_smaller_than_the_cutoff(model, atoms):
    """C06."""
    wanted = ("energy", "forces", "stress")
    one = evaluate(model, atoms, *wanted)
    repeats = [2 if periodic else 1 for periodic in atoms.pbc]
    many = evaluate(model, atoms.repeat(repeats), *wanted)
    size = np.prod(repeats)
    np.testing.assert_allclose(many["energy"], size * one["energy"], atol=1e-8)
    np.testing.assert_allclose(many["stress"], one["stress"], atol=1e-8)
    assert np.abs(one["forces"]).max() < 1e-9
    assert np.abs(many["forces"]).max() < 1e-9
    assert np.abs(one["stress"]).max() > 1e-5


@pytest.mark.parametrize("first", [[28.1, 0, 0], [-399.9, 800, 12]])
def test_unwrapped_positions(model, first):
    """C07."""
    wanted = ("energy", "forces", "stress")
    atoms = Atoms("Ar2", [[0.1, 0, 0], [3.9, 0, 0]], cell=[4, 4, 4], pbc=True)
    expected = evaluate(model, atoms, *wanted)
    atoms.positions[0] = first
    found = evaluate(model, atoms, *wanted)
    for name in wanted:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-8)
    assert atoms.positions[0].tolist() == first


def test_a_cell_without_periodicity_changes_nothing(model):
    """C09."""
    cells = [None, np.eye(3), 50 * np.eye(3), np.eye(3)[[1, 0, 2]]]
    structures = [Atoms("H2", [[0, 0, 0], [0, 0, 1.5]], cell=cell) for cell in cells]
    singles = [evaluate(model, atoms) for atoms in structures]
    out = model.predict(graph_of(*structures), ["energy", "forces"])
    for number, one in enumerate(singles):
        np.testing.assert_array_equal(one["energy"], singles[0]["energy"])
        np.testing.assert_array_equal(one["forces"], singles[0]["forces"])
        np.testing.assert_allclose(out["energy"][:, number], one["energy"], atol=1e-12)


@pytest.mark.parametrize(
    ("shift", "tolerance"), [([5000, 0, 0], 1e-8), ([0, -1e6, 0], 1e-5)]
)
def test_far_from_the_origin(model, shift, tolerance):
    """C10, with float64 and float32 models and graphs."""
    far = water()
    far.positions += shift
    expected = evaluate(model, water())["energy"]
    assert np.abs(expected - 3 * LONE_H).max() > 1e-2
    np.testing.assert_allclose(
        evaluate(model, far)["energy"], expected, rtol=0, atol=tolerance
    )
    single = make_field(type(model.backbone).__name__, dtype=torch.float32)
    for dtype in (torch.float64, torch.float32):
        out = single.predict(graph_of(far, dtype=dtype), ["energy"])
        np.testing.assert_allclose(out["energy"][:, 0], expected, rtol=0, atol=1e-4)


def test_many_neighbors(model):
    """C11: no cap, so energies do not depend on orientation and order."""
    grid = argon_grid()
    rng = np.random.default_rng(0)
    order = rng.permutation(125)
    turned = grid[order]
    turned.positions = turned.positions @ random_rotation(1).T
    one, other = evaluate(model, grid), evaluate(model, turned)
    np.testing.assert_allclose(other["energy"], one["energy"], rtol=1e-10)
    forces = one["forces"][:, order] @ random_rotation(1).T
    np.testing.assert_allclose(other["forces"], forces, atol=1e-8)
    for index in ((0, 1), (62, 2), (7, 0)):
        slope = energy_at(model, grid, index, 1e-4) - energy_at(model, grid, index, -1e-4)
        np.testing.assert_allclose(one["forces"][:, *index], -slope / 2e-4, atol=1e-5)


def energy_at(model, atoms, index, step):
    moved = atoms.copy()
    moved.positions[index] += step
    return evaluate(model, moved, "energy")["energy"]


def test_unknown_elements(model):
    """C14: refused by name, and nothing is left behind."""
    before = evaluate(model, water())["energy"]
    for numbers, name in (
        ([2, 2], "He"),
        ([8, 0], "X"),
        ([1, 118], "Og"),
        ([16, 1], "S"),
    ):
        atoms = Atoms(numbers=numbers, positions=[[0, 0, 0], [0, 0, 3]])
        with pytest.raises(
            UnknownElementError, match=f"element {name}; it knows H, C, N"
        ):
            evaluate(model, atoms)
    np.testing.assert_array_equal(evaluate(model, water())["energy"], before)


def test_empty_structures(model):
    out = model.predict(graph_of(Atoms(), H2, Atoms()), ["energy", "forces"])
    assert out["energy"][:, [0, 2]].eq(0).all()
    np.testing.assert_allclose(out["energy"][:, 1], evaluate(model, H2)["energy"])
    nothing = model.predict(graph_of(Atoms()), ["energy", "forces"])
    assert nothing["energy"].tolist() == [[0.0]] * 3
    assert nothing["forces"].shape == (3, 0, 3)
