import numpy as np
import pytest
import torch
from ase.build import bulk

from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.calculators.skin import SkinList
from gnnforce.errors import GeometryError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems

FIELDS = ("numbers", "positions", "cell", "pbc", "edge_index", "edge_shifts", "charge")


def assert_same_graph(graph, atoms, cutoff):
    expected = AtomGraph.from_atoms(atoms, cutoff)
    for name in FIELDS:
        assert torch.equal(graph[name], expected[name]), name


@pytest.mark.parametrize("skin", [0.0, 1.0])
def test_graphs_equal_a_new_search_along_a_walk(skin):
    rng = np.random.default_rng(1)
    atoms = bulk("Cu", cubic=True) * 2
    lists = SkinList(3.0, skin)
    for _ in range(60):
        atoms.positions += rng.normal(scale=0.02, size=(len(atoms), 3))
        assert_same_graph(lists.graph(atoms), atoms, 3.0)
    assert lists.n_searches == 60 if skin == 0 else 1 < lists.n_searches < 30


def test_folded_atoms_are_searched_again():
    atoms = bulk("Cu", cubic=True) * 2
    atoms.positions += 0.01
    lists = SkinList(3.0, 0.5)
    lists.graph(atoms)
    atoms.positions += 0.05
    lists.graph(atoms)
    assert lists.n_searches == 1
    atoms.positions[0] += atoms.cell.array[0]
    assert_same_graph(lists.graph(atoms), atoms, 3.0)
    assert lists.n_searches == 2


@pytest.mark.parametrize("change", ["numbers", "cell", "pbc", "size"])
def test_everything_else_is_searched_again(change):
    atoms = systems.five_elements(periodic=True)
    lists = SkinList(3.0, 1.0)
    lists.graph(atoms)
    if change == "numbers":
        atoms.numbers[0] = 6
    elif change == "cell":
        atoms.set_cell(atoms.cell.array * 1.1)
    elif change == "pbc":
        atoms.pbc = [True, False, True]
    else:
        del atoms[0]
    assert_same_graph(lists.graph(atoms), atoms, 3.0)
    assert lists.n_searches == 2


def test_charge_of_a_reused_list_is_the_new_one():
    atoms = systems.water()
    lists = SkinList(5.0, 1.0)
    lists.graph(atoms)
    atoms.info["charge"] = 2
    assert lists.graph(atoms).charge.tolist() == [2.0]
    assert lists.n_searches == 1


def test_collisions_and_nan_are_refused_on_a_reused_list():
    atoms = systems.water()
    atoms.positions[2] = [0.96, 0.4, 0]
    lists = SkinList(5.0, 2.0)
    lists.graph(atoms)
    atoms.positions[2] = atoms.positions[1]
    with pytest.raises(GeometryError, match="atoms 1 and 2"):
        lists.graph(atoms)
    atoms.positions[2] = np.nan
    with pytest.raises(GeometryError, match="atom 2"):
        lists.graph(atoms)


@pytest.mark.parametrize("skin", [-0.1, float("nan"), float("inf")])
def test_bad_skin(skin):
    with pytest.raises(UserError, match="skin"):
        SkinList(5.0, skin)


def test_calculator_with_skin_gives_the_same():
    model = ForceField(SchNet([29], n_features=4, cutoff=3.5), [Head("e")]).double()
    plain, skinned = Calculator(model), Calculator(model, skin=0.6)
    atoms = bulk("Cu", cubic=True)
    for _ in range(5):
        atoms.rattle(0.05, seed=3)
        np.testing.assert_allclose(
            skinned.get_forces(atoms), plain.get_forces(atoms), atol=1e-12
        )


def test_the_same_edges_are_the_same_tensors():
    atoms = bulk("Cu", cubic=True) * 2
    lists = SkinList(3.5, 1.0)
    first = lists.graph(atoms)
    atoms.positions[0] += 1e-4
    again = lists.graph(atoms)
    assert again.edge_index is first.edge_index  # what is derived from edges is kept
    atoms.positions[0, 0] += 0.3
    moved = lists.graph(atoms)
    assert lists.n_searches == 1
    assert moved.edge_index is not first.edge_index
    assert_same_graph(moved, atoms, 3.5)
