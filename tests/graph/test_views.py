import numpy as np
import torch
from ase import Atoms
from ase.build import molecule

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
from gnnforce.testing.systems import five_elements, skewed_pair


def mixed():
    structures = [
        skewed_pair(),
        Atoms("H"),
        molecule("H2O"),
        five_elements(periodic=True),
    ]
    return structures, batch([AtomGraph.from_atoms(a, 4.0) for a in structures])


def test_vectors_are_those_of_the_definition():
    structures, graph = mixed()
    vectors, owner = edge_vectors(graph), edge_graphs(graph)
    cells = np.array([atoms.cell.array for atoms in structures])
    source, target = graph.edge_index.numpy()
    shifts = np.einsum("es,esk->ek", graph.edge_shifts.numpy(), cells[owner.numpy()])
    positions = graph.positions.numpy()
    np.testing.assert_allclose(vectors, positions[source] + shifts - positions[target])
    assert (vectors.norm(dim=1) < 4.0).all()


def test_volume_is_positive_and_the_users():
    left_handed = skewed_pair()
    left_handed.set_cell(left_handed.cell.array[[1, 0, 2]])
    graph = batch([AtomGraph.from_atoms(a, 4.0) for a in (skewed_pair(), left_handed)])
    expected = skewed_pair().get_volume()
    torch.testing.assert_close(volumes(graph), torch.tensor([expected] * 2).double())


def test_which_structures_have_a_stress():
    slab = Atoms("Cu", cell=[3, 3, 20], pbc=[True, True, False])
    wire = Atoms("Cu", cell=[[3, 0, 0], [0, 0, 0], [0, 0, 0]], pbc=[True, False, False])
    boxed = Atoms("Cu", cell=[9, 9, 9], pbc=False)
    graphs = [AtomGraph.from_atoms(a, 4.0) for a in (slab, wire, boxed, skewed_pair())]
    assert has_stress(batch(graphs)).tolist() == [True, False, False, True]


def test_sums_over_edges_are_the_chain_rule():
    _, graph = mixed()
    graph.positions.requires_grad_()
    strain = torch.zeros(graph.n_graphs, 3, 3, dtype=torch.float64, requires_grad=True)
    vectors = edge_vectors(graph)
    bent = vectors + torch.einsum("ek,ekl->el", vectors, strain[edge_graphs(graph)])
    weights = torch.randn(2, graph.n_edges, 3, dtype=torch.float64)
    for row in range(2):
        energy = (weights[row] * bent).sum()
        by_atom, by_strain = torch.autograd.grad(
            energy, (graph.positions, strain), retain_graph=True
        )
        forces = forces_from_edges(weights, graph)[row]
        torch.testing.assert_close(forces, -by_atom)
        virial = virials_from_edges(weights, vectors, graph)[row]
        symmetric = 0.5 * (by_strain + by_strain.transpose(1, 2))
        torch.testing.assert_close(virial, -symmetric)
