from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from ase import Atoms

from gnnforce.derivatives.forward import (
    STRAINS,
    contract_nodes,
    forces_from_directions,
    places_of,
    push_forward,
    strains,
    tangents_of,
    virials_from_directions,
)
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import (
    edge_vectors,
    forces_from_edges,
    virials_from_edges,
)
from gnnforce.testing.systems import five_elements, skewed_pair, water

STRUCTURES = (water(), Atoms(), five_elements(periodic=True), Atoms("H"), skewed_pair())


@pytest.fixture
def graph():
    return batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in STRUCTURES])


def test_places(graph):
    places = places_of(graph, 5)
    assert places.local.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1]
    assert places.n_directions == 15


def test_directions_move_one_coordinate_of_every_graph(graph):
    """Against edge vectors of structures that were really moved."""
    vectors = edge_vectors(graph)
    places = places_of(graph, 5)
    found = tangents_of(graph, vectors, places, torch.arange(15 + STRAINS))
    for number in range(15):
        moved = graph.clone()
        mine = places.local == number // 3
        moved.positions = graph.positions.clone()
        moved.positions[mine, number % 3] += 1.0
        torch.testing.assert_close(found[number], edge_vectors(moved) - vectors)
    for number, strain in enumerate(strains(vectors)):
        moved = graph.clone()
        moved.positions = graph.positions + graph.positions @ strain
        moved.cell = graph.cell + graph.cell @ strain
        torch.testing.assert_close(found[15 + number], edge_vectors(moved) - vectors)
    some = torch.tensor([16, 3, 20])
    torch.testing.assert_close(tangents_of(graph, vectors, places, some), found[some])


def test_slopes_along_directions_are_forces_and_virials(graph):
    """For random gradients of edges, as the sums over edges give them."""
    vectors = edge_vectors(graph)
    gradients = torch.randn(2, graph.n_edges, 3, dtype=torch.float64)
    places = places_of(graph, 5)
    directions = tangents_of(graph, vectors, places, torch.arange(15 + STRAINS))
    of_edges = torch.einsum("nex,kex->enk", gradients, directions)
    owner = graph.graph_index[graph.edge_index[1]]
    slopes = torch.zeros(graph.n_graphs, 2, 21, dtype=torch.float64)
    slopes = slopes.index_add(0, owner, of_edges).transpose(0, 1)
    torch.testing.assert_close(
        forces_from_directions(slopes, places), forces_from_edges(gradients, graph)
    )
    torch.testing.assert_close(
        virials_from_directions(slopes), virials_from_edges(gradients, vectors, graph)
    )


@pytest.mark.parametrize("n_graphs", [1, 5])
def test_contraction(graph, n_graphs):
    graph = graph[2] if n_graphs == 1 else graph
    cotangents = torch.randn(4, graph.n_atoms, 3, dtype=torch.float64)
    tangents = torch.randn(6, graph.n_atoms, 3, dtype=torch.float64)
    expected = torch.zeros(4, n_graphs, 6, dtype=torch.float64)
    for atom, owner in enumerate(graph.graph_index.tolist()):
        expected[:, owner] += cotangents[:, atom] @ tangents[:, atom].T
    torch.testing.assert_close(contract_nodes(cotangents, tangents, graph), expected)


def test_one_value_and_gradients_of_parameters():
    calls = []
    weight = torch.tensor([2.0, 3.0], requires_grad=True)

    def function(x):
        calls.append(x)
        return torch.stack([(weight * x**2).sum(), x.prod()])

    x = torch.tensor([1.0, 5.0])
    value, rows = push_forward(function, x, torch.eye(2))
    assert len(calls) == 1
    assert value.tolist() == [77.0, 5.0]
    assert rows.tolist() == [[4.0, 5.0], [30.0, 1.0]]  # directions first
    (slope,) = torch.autograd.grad((rows**2).sum(), weight)
    torch.testing.assert_close(slope, 8 * weight * x**2)


def test_threads_do_not_disturb_each_other():
    """PyTorch counts levels of forward mode for the whole process."""
    x = torch.linspace(0.1, 1.0, 50, dtype=torch.float64)
    unit = torch.eye(50, dtype=torch.float64)

    def job(_):
        return push_forward(lambda x: torch.sin(x) * x.exp(), x, unit)[1]

    expected = job(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(job, range(80)):
            assert torch.equal(found, expected)
