import numpy as np
import pytest
import torch
from ase import Atoms
from ase.neighborlist import primitive_neighbor_list

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import (
    edge_graphs,
    edge_vectors,
    forces_from_edges,
    has_stress,
    virials_from_edges,
    volumes,
)
from gnnforce.testing.systems import five_elements, skewed_pair, water


def both():
    structures = [skewed_pair(), water(), five_elements(periodic=True)]
    return batch([AtomGraph.from_atoms(atoms, 4.5) for atoms in structures])


def test_edge_vectors_equal_those_of_ase():
    atoms = five_elements(periodic=True)
    atoms.positions[1] += 3 * atoms.cell.array[0]
    graph = AtomGraph.from_atoms(atoms, 4.5)
    i, j, vectors = primitive_neighbor_list(
        "ijD", atoms.pbc, atoms.cell, atoms.positions, 4.5
    )
    expected = np.column_stack([j, i, vectors])
    found = np.column_stack([graph.edge_index.numpy().T, edge_vectors(graph)])
    key = lambda rows: rows[np.lexsort(rows.round(6).T)]  # noqa: E731
    np.testing.assert_allclose(key(found), key(expected), atol=1e-12)


def test_edges_know_their_graph():
    graph = both()
    counts = [AtomGraph.from_atoms(a, 4.5).n_edges for a in (skewed_pair(), water())]
    assert edge_graphs(graph).bincount().tolist()[:2] == counts


def test_volumes_do_not_depend_on_handedness():
    cell = skewed_pair().cell.array
    for vectors in (cell, cell[[1, 0, 2]]):
        graph = AtomGraph.from_atoms(Atoms("H", cell=vectors), 1.0)
        assert volumes(graph).item() == pytest.approx(skewed_pair().get_volume())
    assert volumes(AtomGraph.from_atoms(water(), 1.0)).tolist() == [0.0]


FLAT = [[3.0, 0.1, 0.3], [0.1, 3.0, 0.7], [0.97, 2.13, 0.58]]  # 0.3 a + 0.7 b


@pytest.mark.parametrize(
    ("cell", "pbc", "expected"),
    [
        (np.eye(3) * 9, [1, 1, 1], True),
        (np.eye(3) * 9, [0, 0, 1], True),
        (np.eye(3) * 9, [0, 0, 0], False),
        (np.diag([9, 9, 0]), [1, 1, 0], False),
        (np.diag([9, 9, 1e-3]), [1, 1, 0], True),
        (FLAT, [1, 1, 0], False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_which_structures_have_a_stress(cell, pbc, expected, dtype):
    """A determinant of rounding errors is no volume."""
    graph = AtomGraph.from_atoms(Atoms("H", cell=cell, pbc=pbc), 1.0, dtype)
    assert has_stress(graph).tolist() == [expected]


def energy_of(vectors):
    """Two made-up outputs of the edge vectors."""
    lengths = vectors.norm(dim=1)
    return torch.stack(
        [torch.exp(-lengths).sum(), (vectors[:, 0] * lengths**2 + 0.3).sin().sum()]
    )


def test_forces_are_those_of_positions():
    graph = both()
    positions = graph.positions.clone().requires_grad_()
    moved = graph.clone()
    moved.positions = positions
    energy = energy_of(edge_vectors(moved))
    vectors = edge_vectors(graph).requires_grad_()
    for number in range(2):
        (by_positions,) = torch.autograd.grad(
            energy[number], positions, retain_graph=True
        )
        (by_edges,) = torch.autograd.grad(energy_of(vectors)[number], vectors)
        forces = forces_from_edges(by_edges[None], graph)
        torch.testing.assert_close(forces[0], -by_positions, rtol=1e-12, atol=1e-12)
        assert by_positions.abs().max() > 0.1


def test_virials_are_minus_the_slope_of_strain():
    graph = both()
    vectors = edge_vectors(graph)
    strain = torch.zeros(3, 3, 3, dtype=torch.float64, requires_grad=True)
    symmetric = 0.5 * (strain + strain.transpose(1, 2))
    bent = vectors + torch.einsum("ex,exy->ey", vectors, symmetric[edge_graphs(graph)])
    leaf = vectors.clone().requires_grad_()
    for number in range(2):
        (slope,) = torch.autograd.grad(energy_of(bent)[number], strain, retain_graph=True)
        (by_edges,) = torch.autograd.grad(energy_of(leaf)[number], leaf)
        virials = virials_from_edges(by_edges[None], vectors, graph)
        assert virials.shape == (1, 3, 3, 3)
        torch.testing.assert_close(virials[0], -slope, rtol=1e-11, atol=1e-11)


def test_no_edges_give_zeros():
    graph = AtomGraph.from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, 7]]), 5.0)
    nothing = torch.zeros(4, 0, 3, dtype=torch.float64)
    assert edge_vectors(graph).shape == (0, 3)
    assert torch.equal(forces_from_edges(nothing, graph), torch.zeros(4, 2, 3).double())
    virials = virials_from_edges(nothing, nothing[0], graph)
    assert torch.equal(virials, torch.zeros(4, 1, 3, 3).double())
