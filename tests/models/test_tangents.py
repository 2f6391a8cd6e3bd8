import pytest
import torch
from ase import Atoms
from torch_geometric.data import Data

from gnnforce.backbones.base import Backbone
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models import tangents
from gnnforce.models.leaves import FIELDS
from gnnforce.models.tangents import largest_graph, n_directions
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements, water

from .fields import ELEMENTS, graph_of, make_field


def test_the_largest_graph_of_a_batch():
    batch = graph_of(water(), Atoms(), five_elements(), Atoms("H"))
    assert largest_graph(batch, may_wait=False) == 5
    bare = AtomGraph(**{name: batch[name] for name in FIELDS}, batch=batch.graph_index)
    assert getattr(bare, "_slice_dict", None) is None
    assert largest_graph(bare, may_wait=False) == 5
    elsewhere = bare.to("meta")  # stands for a device for which the host would wait
    assert largest_graph(elsewhere, may_wait=False) == 9
    assert largest_graph(graph_of(water()), may_wait=False) == 3
    assert largest_graph(graph_of(Atoms()), may_wait=False) == 0
    assert isinstance(batch, Data)
    for forces, virial, expected in ((1, 0, 15), (1, 1, 21), (0, 1, 6)):
        wanted = {"forces": bool(forces), "virial": bool(virial)}
        assert n_directions(batch, **wanted, may_wait=False) == expected


def test_a_batch_made_by_hand():
    """No sizes on the host."""
    batch = graph_of(water(), five_elements())
    bare = AtomGraph(**{name: batch[name] for name in FIELDS}, batch=batch.graph_index)
    model = make_field()
    expected = model.predict(batch, strategy="loop")["forces"]
    found = model.predict(bare, strategy="forward")["forces"]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_directions_do_not_grow_with_the_batch_or_the_outputs():
    model = make_field("SchNet", [Head("a", members=50)])
    one = model.predict(graph_of(water()), strategy="forward")
    many = model.predict(graph_of(*[water()] * 5), strategy="forward")
    assert one.choice.passes == many.choice.passes == 9


def test_stress_alone_is_six_directions(monkeypatch):
    seen = []
    original = tangents.push_forward

    def counted(function, point, directions):
        seen.append(directions.shape[0])
        return original(function, point, directions)

    monkeypatch.setattr(tangents, "push_forward", counted)
    model = make_field("SchNet")
    out = model.predict(graph_of(five_elements(True)), ["stress"], strategy="forward")
    assert seen == [out.choice.passes] == [6]


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("architecture", ["PaiNN", "SchNet"])
def test_no_slice_loops(architecture):
    model = make_field(architecture, repulsion=True)
    graph = graph_of(five_elements(periodic=True))
    for create_graph in (False, True):
        model.predict(
            graph, ["forces", "stress"], strategy="forward", create_graph=create_graph
        )


class Clamp(torch.autograd.Function):
    """A function with a backward rule only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (1 - x.tanh() ** 2)


class NoRule(Backbone):
    """Uses an operation that has no forward-mode rule."""

    def __init__(self, elements, n_features=4, cutoff=5.0, **_sizes):
        super().__init__(elements, n_features, cutoff)
        self.weight = torch.nn.Parameter(torch.randn(n_features))

    def forward(self, graph, vectors):
        source = graph.edge_index[1]
        energy = torch.exp(-(vectors**2).sum(dim=1))[:, None] * self.weight
        rows = torch.zeros(graph.n_atoms, self.n_features, dtype=vectors.dtype)
        return Clamp.apply(rows.index_add(0, source, energy))


def test_an_operation_without_a_rule():
    model = make_field(NoRule, [Head("a", members=3)])
    assert model.elements == ELEMENTS
    graph = graph_of(water())
    expected = model.predict(graph, strategy="loop")["forces"]
    with pytest.raises(UserError, match=r"'forward' cannot .*; use strategy='loop'"):
        model.predict(graph, strategy="forward")
    for strategy in ("batched", "jacobian", "auto"):  # its backward pass can be batched
        found = model.predict(graph, strategy=strategy)["forces"]
        torch.testing.assert_close(found, expected)
