import numpy as np
import pytest

from gnnforce.errors import UserError
from gnnforce.graph.convert import graph_from_atoms
from gnnforce.testing import systems


def test_counts_of_the_known_cases():
    assert graph_from_atoms(systems.copper(), 5.0).n_edges == 42
    grid = graph_from_atoms(systems.argon_grid(), 5.0)
    assert grid.n_edges == 6818
    degrees = grid.edge_index[1].bincount()
    assert (degrees.max().item(), degrees[0].item()) == (116, 28)
    assert graph_from_atoms(systems.water(), 5.0).n_edges == 6


@pytest.mark.parametrize("make", [systems.cluster, systems.crystal])
@pytest.mark.parametrize("n_atoms", [1, 3, 9, 27])
def test_random_structures_are_sane(make, n_atoms):
    atoms = make([1, 6, 8], n_atoms)
    assert len(atoms) == n_atoms
    assert set(atoms.numbers) == set([1, 6, 8][:n_atoms])
    distances = atoms.get_all_distances(mic=bool(atoms.pbc.any()))
    apart = distances[~np.eye(n_atoms, dtype=bool)]
    assert apart.size == 0 or apart.min() > 1.0
    np.testing.assert_array_equal(make([1, 6, 8], n_atoms).positions, atoms.positions)
    assert (make([1, 6, 8], n_atoms, seed=1).positions != atoms.positions).any()


def test_periodic_ones_have_a_volume():
    for atoms in (
        systems.five_elements(True),
        systems.skewed_pair(),
        systems.crystal([1]),
    ):
        assert atoms.pbc.all()
        assert atoms.get_volume() > 1
    assert not systems.five_elements().pbc.any()


def test_refusals():
    for elements, n_atoms in (([], 3), ([1], 0), ([1], 28)):
        with pytest.raises(UserError, match="cluster"):
            systems.cluster(elements, n_atoms)
