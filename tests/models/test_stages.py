import pytest
import torch
from ase import Atoms

from gnnforce.models.stages import Task, features_of, node_cotangents
from gnnforce.testing.systems import five_elements, water

from .fields import KINDS, graph_of, make_field


def task_of(model, graph, **options):
    vectors = torch.randn(graph.n_edges, 3, dtype=torch.float64, requires_grad=True)
    defaults = {"weights": None, "create_graph": False, "shared": None}
    return Task(
        model,
        graph,
        vectors.detach(),
        vectors,
        table=model.outputs,
        forces=True,
        virial=False,
        per_piece=100,
        memory=10**9,
        **(defaults | options),
    )


@pytest.mark.parametrize("n_combinations", [None, 1, 3])
@pytest.mark.parametrize("create_graph", [False, True])
def test_node_cotangents_are_slopes_of_the_readouts(n_combinations, create_graph):
    """Against one backward pass an output, from the energy to the node features."""
    model = make_field("SchNet", KINDS)
    graph = graph_of(water(), Atoms(), five_elements(periodic=True))
    weights = None
    if n_combinations:
        weights = torch.randn(n_combinations, 7, 3, dtype=torch.float64)
    task = task_of(model, graph, weights=weights, create_graph=create_graph)
    features = features_of(task, "batched")
    out, slopes = node_cotangents(task, features, model.outputs)
    again = model.readouts(features, graph, None, model.outputs)
    torch.testing.assert_close(out.energy, again.energy)
    energy = again.energy
    if weights is not None:
        energy = torch.einsum("cng,ng->cg", weights, energy)
    for found, one in zip(slopes, energy, strict=True):
        (expected,) = torch.autograd.grad(one.sum(), features.atoms, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    assert slopes.requires_grad is create_graph


def test_readouts_are_evaluated_once_for_all_outputs():
    model = make_field("SchNet", KINDS)
    calls = []
    handle = model.readouts.register_forward_hook(lambda *_: calls.append(1))
    graph = graph_of(water())
    for strategy in ("loop", "batched", "chain", "forward"):
        calls.clear()
        model.predict(graph, strategy=strategy)
        assert len(calls) == 1
    handle.remove()
