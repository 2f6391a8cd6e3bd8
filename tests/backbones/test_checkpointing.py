"""Activation checkpointing: the same numbers from far less that is kept."""

import pytest
import torch

from gnnforce.backbones.base import Backbone
from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.ops.recompute import is_recomputing
from gnnforce.readouts.head import Head
from gnnforce.testing import systems

ARCHITECTURES = {"PaiNN": PaiNN, "SchNet": SchNet}
SIZES = {"n_features": 16, "n_layers": 4, "n_radial": 6}


def case(architecture, members=3):
    torch.manual_seed(0)
    backbone = ARCHITECTURES[architecture]([1, 6, 8], **SIZES)
    model = ForceField(backbone, [Head("energy", members=members, hidden=(8,))]).double()
    frames = [systems.cluster([1, 6, 8], 9), systems.crystal([1, 6, 8], 5)]
    return model, batch([AtomGraph.from_atoms(atoms, 5.0) for atoms in frames])


def step(model, graph, wanted=("energy", "forces"), **options):
    """One training step on everything wanted; predictions and gradients."""
    model.zero_grad(set_to_none=True)
    out = model.predict(graph, wanted, create_graph=True, **options)
    sum(out[name].square().sum() for name in wanted).backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return {name: out[name].detach() for name in wanted} | gradients


def apart(found, expected) -> float:
    """Largest difference over the largest number; sums run in another order."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))


class Kept:
    """A tensor that a graph keeps; counts the bytes of all, each memory once."""

    users: dict[int, int]
    bytes = 0
    peak = 0

    def __init__(self, tensor):
        self.tensor, memory = tensor, tensor.untyped_storage()
        self.key, self.size = memory.data_ptr(), memory.nbytes()
        Kept.bytes += 0 if Kept.users.get(self.key) else self.size
        Kept.users[self.key] = Kept.users.get(self.key, 0) + 1
        Kept.peak = max(Kept.peak, Kept.bytes)

    def __del__(self):
        Kept.users[self.key] -= 1
        Kept.bytes -= 0 if Kept.users[self.key] else self.size


def peak_of(model, graph, **options):
    """Largest number of bytes that graphs of operations keep during a training step."""
    Kept.users, Kept.bytes, Kept.peak = {}, 0, 0
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        step(model, graph, **options)
    return Kept.peak


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_results_and_gradients_are_the_same(architecture, members):
    model, graph = case(architecture, members)
    expected = step(model, graph, strategy="loop")
    model.backbone.checkpointing = True
    found = step(model, graph, strategy="loop")
    for name, value in expected.items():
        assert apart(found[name], value) < 1e-12, name


def test_stress_too():
    model, _ = case("PaiNN")
    crystal = AtomGraph.from_atoms(systems.crystal([1, 6, 8], 5), 5.0)
    expected = step(model, crystal, ("energy", "forces", "stress"), strategy="loop")
    model.backbone.checkpointing = True
    found = step(model, crystal, ("energy", "forces", "stress"))
    for name, value in expected.items():
        assert apart(found[name], value) < 1e-12, name


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_less_is_kept(architecture, members):
    model, graph = case(architecture, members)
    plain = peak_of(model, graph, strategy="loop")
    model.backbone.checkpointing = True
    assert peak_of(model, graph, strategy="loop") < 0.6 * plain


def test_auto_takes_the_loop_and_others_are_refused():
    model, graph = case("PaiNN", members=16)
    model.backbone.checkpointing = True
    out = model.predict(graph, create_graph=True)
    assert out.strategy == "loop"
    for strategy in set(OF_MODELS) - {"loop"}:
        with pytest.raises(
            UserError, match=r"use strategy='loop'.*checkpointing = False"
        ):
            model.predict(graph, create_graph=True, strategy=strategy)
    with pytest.raises(UserError, match="unknown strategy 'lop'"):
        model.predict(graph, create_graph=True, strategy="lop")


@pytest.mark.parametrize("strategy", OF_MODELS)
def test_only_training_is_affected(strategy, monkeypatch):
    model, graph = case("SchNet")
    expected = model.predict(graph, strategy=strategy)["forces"]
    model.backbone.checkpointing = True
    seen = []
    forward = SchNet.forward

    def watched(*args):
        seen.append(is_recomputing())
        return forward(*args)

    monkeypatch.setattr(SchNet, "forward", watched)
    assert torch.equal(model.predict(graph, strategy=strategy)["forces"], expected)
    model.predict(graph, create_graph=True)
    assert seen[-1] is True
    assert not any(seen[:-1])


def test_a_backbone_without_layers_refuses():
    class Bare(Backbone):
        def forward(self, graph, vectors):
            return vectors.new_zeros(graph.n_atoms, self.n_features)

    backbone = Bare([1], 4, 5.0)
    backbone.checkpointing = False
    with pytest.raises(UserError, match="Bare has no activation checkpointing"):
        backbone.checkpointing = True
    assert not backbone.checkpointing


def test_the_switch_is_no_part_of_the_model():
    model, _ = case("PaiNN")
    before = set(model.state_dict())
    model.backbone.checkpointing = True
    assert set(model.state_dict()) == before
    assert "checkpointing" not in model.backbone.arguments()
    assert not case("PaiNN")[0].backbone.checkpointing
