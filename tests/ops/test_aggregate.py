import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.ops import aggregate as room
from gnnforce.ops import bags
from gnnforce.ops.aggregate import aggregate
from gnnforce.ops.edges import Edges, Paths, Radial
from gnnforce.ops.polar import polar
from gnnforce.ops.slots import make_slots

from .dense import (
    CUTOFF,
    GRAPHS,
    assert_same,
    basis,
    basis_slope,
    cotangents_of,
    dense_sum,
    edge_vectors,
    graphs,
    pull_in_turn,
    pull_together,
)

N_FEATURES = 3
N_OUTPUTS = 4
PATHS = [
    ((0,), ()),
    ((0, 1), ()),
    ((0, 1, 2), ()),
    ((), (0,)),
    ((), (1,)),
    ((), (0, 1, 2)),
    ((0, 1), (1,)),
    ((2, 0), (1, 2)),
    ((0, 1, 2), (0, 1, 2)),
]
WIDTHS = [None, 1, 3, 8, 16]


class Case:
    """One layer's inputs, and the sum computed by the primitive and edge by edge."""

    def __init__(self, paths, graph, width=None, seed=0):
        self.paths, self.graph = paths, graph
        edge_index, n_atoms = graph
        self.slots = make_slots(edge_index, n_atoms, width)
        self.vectors = edge_vectors(edge_index.shape[1], seed)
        self.steepness = self.leaf()  # a parameter of the radial functions
        n_paths = len(paths[0]) + len(paths[1])
        self.weight = self.leaf(n_paths * N_FEATURES, 4)
        self.sent = [self.leaf(n_atoms, N_FEATURES) for _ in paths[0]]
        for degree in paths[1]:
            middle = () if degree == 0 else (2 * degree + 1,)
            self.sent.append(self.leaf(n_atoms, *middle, N_FEATURES))

    @staticmethod
    def leaf(*shape):
        return torch.randn(shape, dtype=torch.float64).requires_grad_()

    @property
    def inputs(self):
        return [self.vectors, self.weight, *self.sent, self.steepness]

    def primitive(self):
        edges = polar(self.vectors, self.slots, CUTOFF)
        lengths = edges.lengths.detach()
        value = basis(lengths, self.steepness)
        slope = basis_slope(lengths, self.steepness)
        by_source = value.index_select(0, self.slots.slot_by_source)
        radial = Radial(value, slope, by_source, self.weight)
        return aggregate(Paths(*self.paths), edges, radial, *self.sent)

    def dense(self):
        lengths = self.vectors.square().sum(dim=1).sqrt()
        geometry = lengths, self.vectors / lengths[:, None]
        functions = basis(lengths, self.steepness) @ self.weight.T
        return dense_sum(self.paths, self.graph, geometry, functions, self.sent)


def compare(case, tol=1e-12):
    """Values, and batched cotangents to everything that has a batched derivative."""
    found, expected = case.primitive(), case.dense()
    assert_same(found, expected, tol)
    for n_outputs in (1, N_OUTPUTS):
        cotangents = cotangents_of(found, n_outputs)
        batched = pull_together(found, case.inputs, cotangents)
        assert_same(batched, pull_in_turn(expected, case.inputs, cotangents), tol)


def compare_training(case, n_outputs=N_OUTPUTS, tol=1e-11):
    """A loss on batched gradients of edges and features, and on the results."""
    gradients = []
    n_results = len({*case.paths[0], *case.paths[1]})
    for outputs in (case.primitive(), case.dense()):
        torch.manual_seed(2)
        seeds = [one.requires_grad_() for one in cotangents_of(outputs, n_outputs)]
        assert len(seeds) == n_results
        targets = [case.vectors, *case.sent]
        pull = pull_together if not gradients else pull_in_turn
        rows = pull(outputs, targets, seeds, create_graph=True)
        loss = sum((row**2).sum() for row in rows)
        loss = loss + sum(torch.sin(one).sum() for one in outputs)
        wanted = [case.weight, case.steepness, *case.sent, *seeds]
        gradients.append(torch.autograd.grad(loss, wanted, materialize_grads=True))
    assert_same(gradients[0], gradients[1], tol)


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("paths", PATHS)
def test_values_and_batched_cotangents(paths, width):
    compare(Case(paths, GRAPHS["random"], width))


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_odd_graphs(name, width):
    for paths in (((0,), ()), ((0, 1), (1,)), ((0, 1, 2), (0, 1, 2))):
        compare(Case(paths, GRAPHS[name], width))
        compare_training(Case(paths, GRAPHS[name], width))


@settings(max_examples=25, deadline=None)
@given(graphs(), st.sampled_from(PATHS), st.sampled_from(WIDTHS), st.integers(0, 9))
def test_any_graph(graph, paths, width, seed):
    torch.manual_seed(seed)
    compare(Case(paths, graph, width, seed))


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("n_outputs", [1, N_OUTPUTS])
@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("paths", PATHS)
def test_training_through_batched_gradients(paths, width, n_outputs):
    compare_training(Case(paths, GRAPHS["random"], width), n_outputs)


@pytest.mark.parametrize("paths", PATHS)
def test_results_that_nothing_depends_on(paths):
    """Some cotangents are absent: one result alone is pulled back."""
    case = Case(paths, GRAPHS["random"], 3)
    found, expected = case.primitive(), case.dense()
    for one, other in zip(found, expected, strict=True):
        cotangents = cotangents_of([one], N_OUTPUTS)
        batched = pull_together([one], case.inputs, cotangents)
        assert_same(batched, pull_in_turn([other], case.inputs, cotangents), 1e-12)


@pytest.mark.parametrize("paths", PATHS)
@pytest.mark.parametrize("kept", [True, False])
def test_only_what_is_asked_for(paths, kept, monkeypatch):
    """Every input alone, as the branches of the rule see it."""
    if not kept:
        monkeypatch.setattr(room, "KEPT_ENTRIES", 0)
    case = Case(paths, GRAPHS["random"], 3)
    found, expected = case.primitive(), case.dense()
    cotangents = cotangents_of(found, N_OUTPUTS)
    for one in case.inputs:
        batched = pull_together(found, [one], cotangents)
        assert_same(batched, pull_in_turn(expected, [one], cotangents), 1e-12)


@pytest.mark.parametrize("paths", [((0, 1), ()), ((0, 1), (1,)), ((2,), (0, 2))])
def test_pieces_and_recomputation(paths, monkeypatch):
    """Limits so small that nothing is kept and every feature is sent by itself."""
    monkeypatch.setattr(room, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(bags, "MAX_TERMS", 1)
    monkeypatch.setattr(bags, "MAX_PRODUCTS", 1)
    for name in ("random", "hub"):
        compare(Case(paths, GRAPHS[name], 3))
        compare_training(Case(paths, GRAPHS[name], 3))


@pytest.mark.parametrize("paths", PATHS)
@pytest.mark.parametrize("width", [None, 3])
def test_plain_derivatives_of_any_kind(paths, width):
    """First and second, and first for batched cotangents, as PyTorch checks them."""
    case = Case(paths, GRAPHS["random"], width)
    slots, vectors = case.slots, case.vectors.detach()
    lengths, directions = polar(vectors, slots, CUTOFF)[1:]
    there = (slots.edge < slots.n_edges)[:, None]
    free = case.leaf(len(slots.edge), 4)

    def function(value, weight, *sent):
        value = value * there  # an empty slot has no radial functions
        by_source = value.index_select(0, slots.slot_by_source)
        radial = Radial(value, torch.zeros_like(value), by_source, weight)
        edges = Edges(slots, lengths, directions)
        return aggregate(Paths(*paths), edges, radial, *sent)

    inputs = (free, case.weight, *case.sent)
    assert gradcheck(function, inputs, fast_mode=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


def test_plain_derivatives_entry_by_entry():
    case = Case(((0, 1), (1,)), (torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]]), 2), 2)
    lengths, directions = polar(case.vectors.detach(), case.slots, CUTOFF)[1:]
    value, slope = basis(lengths), basis_slope(lengths)
    radial = value, slope, value.index_select(0, case.slots.slot_by_source)

    def function(weight, *sent):
        edges = Edges(case.slots, lengths, directions)
        return aggregate(Paths(*case.paths), edges, Radial(*radial, weight), *sent)

    assert gradcheck(function, (case.weight, *case.sent))
    assert gradgradcheck(function, (case.weight, *case.sent))


def test_a_loss_stops_at_the_edge_vectors():
    """Documented: a plain backward pass reaches parameters, not the geometry."""
    case = Case(((0, 1), (1,)), GRAPHS["random"])
    total = sum((one**2).sum() for one in case.primitive())
    total.backward()
    expected = sum((one**2).sum() for one in case.dense())
    others = case.inputs[1:]
    assert case.vectors.grad is None
    assert_same(
        [one.grad for one in others], torch.autograd.grad(expected, others), 1e-12
    )


def test_inference_keeps_nothing_and_is_the_same():
    case = Case(((0, 1), (1,)), GRAPHS["hub"])
    expected = case.primitive()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            found = case.primitive()
        assert not any(one.requires_grad for one in found)
        assert_same(found, expected, 1e-15)


@pytest.mark.parametrize("paths", [((0,), ()), ((0, 1), (1,))])
def test_single_precision(paths):
    case = Case(paths, GRAPHS["hub"])
    exact = case.dense()
    cotangents = cotangents_of(exact, N_OUTPUTS)
    slopes = pull_in_turn(exact, case.inputs, cotangents)
    for name in ("vectors", "weight", "steepness"):
        setattr(case, name, getattr(case, name).detach().float().requires_grad_())
    case.sent = [one.detach().float().requires_grad_() for one in case.sent]
    found = case.primitive()
    rows = pull_together(found, case.inputs, [one.float() for one in cotangents])
    assert_same(found, [one.float() for one in exact], 2e-6)
    assert_same(rows, [one.float() for one in slopes], 1e-5)
