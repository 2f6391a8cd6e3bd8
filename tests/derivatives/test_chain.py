"""The chain pulls features back as the loop does, with any cotangents."""

import copy

import pytest
import torch
from ase import Atoms

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.chain import chain_pull_back
from gnnforce.derivatives.loop import loop_pull_back
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import edge_vectors
from gnnforce.ops.mode import chained
from gnnforce.testing.systems import five_elements, skewed_pair, water

STRUCTURES = {
    "batch": (water(), Atoms(), five_elements(periodic=True), Atoms("H"), skewed_pair()),
    "molecule": (water(),),
    "crystal": (five_elements(periodic=True),),
    "no edges": (Atoms("H"), Atoms("C")),
}


@pytest.fixture(params=[SchNet, PaiNN])
def backbone(request):
    torch.manual_seed(3)
    made = request.param([1, 6, 7, 8, 14, 29], n_features=8, n_layers=3, cutoff=3.0)
    made = made.double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def graph_of(name):
    return batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in STRUCTURES[name]])


def pulled(backbone, graph, cotangents, chain, **options):
    vectors = edge_vectors(graph).requires_grad_()
    if not chain:
        rows = backbone(graph, vectors)
        return rows, loop_pull_back(rows, vectors, cotangents, **options)
    with chained():
        rows = backbone(graph, vectors)
    return rows, chain_pull_back(rows, vectors, cotangents, **options)


def close(found, expected):
    size = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * size)


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("n_rows", [1, 2, 5, 40])
@pytest.mark.parametrize("system", STRUCTURES)
@pytest.mark.parametrize("create_graph", [False, True])
def test_as_the_loop(backbone, system, n_rows, create_graph):
    graph = graph_of(system)
    cotangents = torch.randn(n_rows, graph.n_atoms, 8, dtype=torch.float64)
    options = {"create_graph": create_graph}
    rows, expected = pulled(backbone, graph, cotangents, False, **options)
    same, found = pulled(backbone, graph, cotangents, True, **options)
    close(same.detach(), rows.detach())
    close(found.detach(), expected.detach())
    assert found.shape == (n_rows, graph.n_edges, 3)
    assert found.requires_grad is create_graph
    if graph.n_edges:
        assert expected.abs().amax(dim=(1, 2)).min() > 1e-6


@pytest.mark.parametrize("system", ["batch", "molecule", "no edges"])
def test_gradients_of_parameters_and_of_cotangents(backbone, system):
    """A loss on the rows reaches the network, and what the cotangents are made of."""
    graph = graph_of(system)
    start = torch.randn(3, graph.n_atoms, 8, dtype=torch.float64)
    target = torch.randn(3, graph.n_edges, 3, dtype=torch.float64)
    results = []
    for chain in (False, True):
        own = copy.deepcopy(backbone)
        seed = start.clone().requires_grad_()
        rows, found = pulled(own, graph, torch.sin(seed), chain, create_graph=True)
        loss = ((found - target) ** 2).sum() + (rows**2).sum()
        inputs = [seed, *own.parameters()]
        results.append(torch.autograd.grad(loss, inputs, materialize_grads=True))
    for found, expected in zip(results[1], results[0], strict=True):
        close(found, expected)
    assert results[0][0].any() or system == "no edges"


def test_the_graph_stays_for_another_piece(backbone):
    graph = graph_of("molecule")
    vectors = edge_vectors(graph).requires_grad_()
    cotangents = torch.randn(4, graph.n_atoms, 8, dtype=torch.float64)
    with chained():
        rows = backbone(graph, vectors)
    first = chain_pull_back(rows, vectors, cotangents[:3], False, keep=True)
    last = chain_pull_back(rows, vectors, cotangents[3:], False)
    _, expected = pulled(backbone, graph, cotangents, False, create_graph=False)
    close(torch.cat([first, last]), expected)
    with pytest.raises(RuntimeError, match=r"second time|freed"):
        chain_pull_back(rows, vectors, cotangents, False)


def test_single_precision(backbone):
    graph = graph_of("batch")
    cotangents = torch.randn(3, graph.n_atoms, 8, dtype=torch.float64)
    _, expected = pulled(backbone, graph, cotangents, False, create_graph=False)
    single = copy.deepcopy(backbone).float()
    vectors = edge_vectors(graph).float().requires_grad_()
    with chained():
        rows = single(graph, vectors)
    found = chain_pull_back(rows, vectors, cotangents.float(), False)
    assert found.dtype == torch.float32
    size = float(expected.abs().max())
    assert float((found.double() - expected).abs().max()) < 1e-4 * size
