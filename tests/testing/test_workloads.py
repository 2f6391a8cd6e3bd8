import numpy as np
import pytest

from gnnforce.errors import UserError
from gnnforce.graph.convert import graph_from_atoms
from gnnforce.testing.workloads import WORKLOADS, acetylacetone, silicon, workload


@pytest.mark.parametrize(
    ("name", "n_structures", "n_atoms"),
    [
        ("molecule", 1, 15),
        ("batch", 8, 120),
        ("molecules", 32, 480),
        ("periodic", 1, 1000),
        ("large", 1, 5000),
    ],
)
def test_sizes(name, n_structures, n_atoms):
    frames = workload(name)
    assert (len(frames), sum(map(len, frames))) == (n_structures, n_atoms)
    assert name in WORKLOADS


def test_molecules_differ_and_are_the_same_every_time():
    first, second = acetylacetone(2)
    assert np.abs(first.positions - second.positions).max() > 0.01
    np.testing.assert_array_equal(acetylacetone(32)[0].positions, first.positions)


def test_the_molecule_has_the_bonds_of_the_enol():
    """Neighbors within 1.25 times the sum of covalent radii: 14 bonds and O...H-O."""
    from ase.data import covalent_radii

    (atoms,) = acetylacetone()
    radii = covalent_radii[atoms.numbers]
    apart = atoms.get_all_distances()
    bonded = (apart < 1.25 * (radii[:, None] + radii)) & (apart > 0)
    assert apart[apart > 0].min() > 0.85
    valences = {6: {3, 4}, 8: {1, 2}, 1: {1}}
    for z, bonds in zip(atoms.numbers, bonded.sum(axis=1), strict=True):
        assert bonds in valences[z]
    assert bonded.sum() == 2 * 14


def test_silicon_has_four_neighbors_and_is_not_perfect():
    atoms = silicon((2, 2, 2))
    graph = graph_from_atoms(atoms, 3.0)
    assert graph.n_edges == 4 * len(atoms)
    assert np.ptp(np.linalg.norm(atoms.positions - atoms.positions[0], axis=1)) > 0
    assert atoms.pbc.all()


def test_unknown_name():
    with pytest.raises(
        UserError, match=r"no workload 'molecul'.*Did you mean 'molecule'"
    ):
        workload("molecul")
