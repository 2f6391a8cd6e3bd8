"""Losses on energies and forces of the heads of a force field, as tasks."""

import pytest
import torch
from ase.build import bulk, molecule

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.tasks import backward_tasks, task_gradients
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

HEADS = [Head("a", members=2), Head("b", hidden=(4,)), Head("c", kind="pooled")]


def setup(backbone):
    torch.manual_seed(3)
    model = ForceField(backbone([1, 6, 14], 8, 2, cutoff=4.0), HEADS).double()
    structures = [molecule("CH4"), bulk("Si", cubic=True), molecule("CH4")]
    for number, atoms in enumerate(structures):
        atoms.rattle(0.1, seed=number)
    graphs = [AtomGraph.from_atoms(atoms, 4.0) for atoms in structures]
    return model, batch(graphs)


def losses_of(model, graph, strategy):
    out = model.predict(graph, ["energy", "forces"], strategy=strategy, create_graph=True)
    return torch.stack(
        [
            ((out.head(head.name).members("energy") + 1) ** 2).mean()
            + (out.head(head.name).members("forces") ** 2).mean()
            for head in model.heads
        ]
    )


def per_task(model, graph):
    """The plain way: one forward pass and one backward pass a head."""
    parameters = list(model.parameters())
    return [
        torch.autograd.grad(
            losses_of(model, graph, "loop")[task], parameters, materialize_grads=True
        )
        for task in range(3)
    ]


@pytest.mark.parametrize("backbone", [PaiNN, SchNet])
@pytest.mark.parametrize(
    ("strategy", "chunk"),
    [("loop", None), ("batched", None), ("batched", 2)]
    + [(name, 1) for name in ("loop", "batched", "jacobian", "forward", "chain", "auto")],
)
@pytest.mark.filterwarnings("ignore:.*torch\\.jit.*:DeprecationWarning")
def test_every_strategy_gives_a_gradient_per_head(backbone, strategy, chunk):
    model, graph = setup(backbone)
    expected = per_task(model, graph)
    shared = list(model.backbone.parameters())
    own = list(model.readouts.parameters())
    losses = losses_of(model, graph, strategy)
    got = task_gradients(losses, shared, own, chunk=chunk)
    floor = 1e-4 * max(float(g.abs().max()) for row in expected for g in row)
    for place, row in enumerate([*got.shared, *got.own]):
        wanted = torch.stack([one[place] for one in expected])
        if place >= len(shared):  # each head has members of its own in the stacks
            wanted = wanted.sum(0)
        scale = max(float(wanted.abs().max()), floor)
        assert float((row - wanted).abs().max()) <= 1e-10 * scale


@pytest.mark.parametrize("backbone", [PaiNN, SchNet])
def test_fixed_weights_are_the_plain_backward(backbone):
    model, graph = setup(backbone)
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    (losses_of(model, graph, "auto") * weights).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for aggregator in (None, lambda rows: rows.sum(0)):
        model.zero_grad()
        backward_tasks(
            losses_of(model, graph, "auto"),
            list(model.backbone.parameters()),
            list(model.readouts.parameters()),
            aggregator,
            weights=weights,
            chunk=1,
        )
        for p, wanted in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, wanted, rtol=1e-11, atol=1e-13)
