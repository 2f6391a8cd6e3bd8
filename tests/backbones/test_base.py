import pytest
import torch
from ase import Atoms
from ase.build import molecule
from torch import nn

from gnnforce.backbones.base import BACKBONES, Backbone, Interaction, edge_lengths
from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import edge_vectors
from gnnforce.models.force_field import ForceField
from gnnforce.nn.mlp import MLP
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements

ARCHITECTURES = [SchNet, PaiNN]


def graph_and_vectors():
    structures = [molecule("CH3OH"), five_elements(periodic=True)]
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    return graph, edge_vectors(graph)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_readable_path_equals_the_fast_one(architecture, monkeypatch):
    graph, vectors = graph_and_vectors()
    vectors.requires_grad_()
    backbone = architecture([1, 6, 7, 8, 14], n_features=8, cutoff=3.0).double()
    fast = backbone(graph, vectors)
    monkeypatch.setattr(Interaction, "readable", True)
    calls = []
    original = Interaction.propagate
    monkeypatch.setattr(
        Interaction, "propagate", lambda *a, **k: calls.append(1) or original(*a, **k)
    )
    readable = backbone(graph, vectors)
    assert len(calls) == 3  # one a layer: the other path was really taken
    torch.testing.assert_close(fast, readable, rtol=1e-13, atol=1e-13)
    slopes = [torch.autograd.grad((y**2).sum(), vectors)[0] for y in (fast, readable)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_both_paths_take_atoms_without_edges(architecture, monkeypatch):
    structures = [Atoms("H"), molecule("CO"), Atoms(), Atoms("O")]
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    lone = AtomGraph.from_atoms(Atoms("H"), 3.0)
    backbone = architecture([1, 6, 8], n_features=8, cutoff=3.0).double()
    fast = [backbone(g, edge_vectors(g)) for g in (graph, lone)]
    monkeypatch.setattr(Interaction, "readable", True)
    readable = [backbone(g, edge_vectors(g)) for g in (graph, lone)]
    assert [len(x) for x in fast] == [4, 1]
    for one, other in zip(fast, readable, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_hooks_of_pyg_are_called(architecture):
    graph, vectors = graph_and_vectors()
    backbone = architecture([1, 6, 7, 8, 14], n_features=4, cutoff=3.0).double()
    layer = next(m for m in backbone.modules() if isinstance(m, Interaction))
    seen = []
    layer.register_message_forward_hook(lambda *_: seen.append(1))
    backbone(graph, vectors)
    assert seen == [1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_arguments_rebuild_it(architecture):
    backbone = architecture([8, 1], n_features=6, n_layers=2, cutoff=3.5, n_radial=7)
    assert BACKBONES[architecture.__name__] is architecture
    again = architecture(**backbone.arguments())
    assert again.arguments() == backbone.arguments()
    again.load_state_dict(backbone.state_dict())


@pytest.mark.parametrize("cutoff", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_cutoff_must_be_positive(architecture, cutoff):
    with pytest.raises(UserError, match="cutoff"):
        architecture([1], cutoff=cutoff)


def test_no_features():
    with pytest.raises(UserError, match="n_features"):
        SchNet([1], n_features=0)


def test_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Backbone([1], 4, 3.0)


def test_lengths():
    assert edge_lengths(torch.tensor([[3.0, 4.0, 0.0]])).tolist() == [5.0]
    assert edge_lengths(torch.zeros(0, 3)).shape == (0,)


@pytest.mark.parametrize("architecture", [PaiNN, SchNet])
def test_what_the_primitives_would_pass_by_keeps_a_backbone_off_them(architecture):
    model = ForceField(architecture([1, 6, 8], n_features=8, n_layers=2), [Head("e", 3)])
    graph = AtomGraph.from_atoms(molecule("CH3OH"), 5.0)
    backbone = model.backbone
    assert backbone.can_chain()
    calls = []
    layer = next(m for m in backbone.modules() if isinstance(m, Interaction))
    for register in (layer.register_forward_hook, layer.register_message_forward_hook):
        hook = register(lambda *_: calls.append(1))
        assert not backbone.can_chain()
        with pytest.raises(UserError, match="chain"):
            model.predict(graph, strategy="chain")
        hook.remove()
    assert backbone.can_chain()

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    perceptron = next(m for m in backbone.modules() if isinstance(m, MLP))
    perceptron[0] = Doubled(perceptron[0])
    assert not backbone.can_chain()
    with pytest.raises(UserError, match="Doubled"):
        perceptron.layers()
    loop = model.predict(graph, strategy="loop")["forces"]
    assert torch.allclose(model.predict(graph)["forces"], loop)


def test_autocast_keeps_a_backbone_off_the_primitives():
    model = ForceField(PaiNN([1, 6, 8], n_features=8, n_layers=1), [Head("e", 9)])
    graph = AtomGraph.from_atoms(molecule("CH3OH"), 5.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not model.backbone.can_chain()
        with pytest.raises(UserError, match="chain"):
            model.predict(graph, strategy="chain")
        assert model.predict(graph).choice.used != "chain"
    assert model.backbone.can_chain()
