import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.backbones.painn import NORM_EPSILON, PaiNNUpdate
from gnnforce.nn.mlp import MLP
from gnnforce.ops import painn as room
from gnnforce.ops import rows as rows_room
from gnnforce.ops.mode import chained
from gnnforce.ops.painn import Update, painn_node
from gnnforce.ops.perceptron import Layers

from .dense import assert_same, cotangents_of, pull_in_turn, pull_together

F = 4
KINDS = ["first", "middle", "last", "only"]


def draw(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


class Case:
    """Inputs of one block, with the modules it stands for."""

    def __init__(self, kind, n_atoms=5):
        self.update = PaiNNUpdate(F).double()
        self.context = None
        if kind in ("first", "middle"):
            self.context = MLP([F, F, 3 * F]).double()
        self.s, self.ds = draw(n_atoms, F), draw(n_atoms, F)
        self.v = None if kind in ("first", "only") else draw(n_atoms, 3, F)
        self.dv = draw(n_atoms, 3, F)

    @property
    def features(self):
        every = [self.s, self.ds, self.v, self.dv]
        return [one for one in every if one is not None]

    @property
    def parameters(self):
        own = list(self.update.parameters())
        return own if self.context is None else own + list(self.context.parameters())

    @property
    def inputs(self):
        return self.features + self.parameters

    def primitive(self):
        context = None if self.context is None else self.context.layers()
        vectors = self.v, self.dv
        return painn_node((self.s, self.ds), vectors, self.update.parts(), context)

    def plain(self):
        """The modules of the backbone, on PyTorch's own operations."""
        v = self.dv if self.v is None else self.v + self.dv
        s, v = self.update(self.s + self.ds, v)
        if self.context is None:
            return (s,)
        x_0, x_1, d = self.context(s).split(F, dim=1)
        return s, v, x_0, x_1, d[:, None] * v


def test_modules_are_the_published_equations():
    """What the primitive is compared with, written out: eqs. 9 and 10."""
    case = Case("middle")
    s, v = case.s + case.ds, case.v + case.dv
    mix = case.update.mix.weight
    u, w = (
        torch.einsum("icf,gf->icg", v, mix[:F]),
        torch.einsum("icf,gf->icg", v, mix[F:]),
    )
    norm = torch.sqrt(w.square().sum(dim=1) + NORM_EPSILON)
    a, b, c = case.update.context(torch.cat([s, norm], dim=1)).split(F, dim=1)
    expected = [s + c + b * (u * w).sum(dim=1), v + a[:, None] * u]
    assert_same(case.plain()[:2], expected, 1e-13)
    assert_same(case.primitive()[:2], expected, 1e-13)


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("cache", [2**19, 1, 200])
@pytest.mark.parametrize("n_atoms", [5, 1, 0])
@pytest.mark.parametrize("kind", KINDS)
def test_as_the_plain_modules(kind, n_atoms, cache, monkeypatch):
    """Values, all cotangents at once and in turn, whole and in pieces of the atoms."""
    monkeypatch.setattr(rows_room, "CACHE_BYTES", cache)
    case = Case(kind, n_atoms)
    found, expected = case.primitive(), case.plain()
    assert_same(found, expected, 1e-13)
    cotangents = cotangents_of(found, 3)
    exact = pull_in_turn(expected, case.inputs, cotangents)
    assert_same(pull_together(found, case.inputs, cotangents), exact, 1e-11)
    assert_same(pull_in_turn(found, case.inputs, cotangents), exact, 1e-11)
    n = len(case.features)
    assert_same(pull_together(found, case.features, cotangents), exact[:n], 1e-11)
    assert_same(pull_in_turn(found, case.features, cotangents), exact[:n], 1e-11)


@pytest.mark.parametrize("cache", [2**19, 1])
@pytest.mark.parametrize("kind", ["first", "middle"])
def test_any_results_may_be_unused(kind, cache, monkeypatch):
    monkeypatch.setattr(rows_room, "CACHE_BYTES", cache)
    case = Case(kind)
    found, expected = case.primitive(), case.plain()
    for number in range(1, 2**5):
        which = [k for k in range(5) if number >> k & 1]
        outputs = [found[k] for k in which]
        cotangents = cotangents_of(outputs, 2)
        exact = pull_in_turn([expected[k] for k in which], case.inputs, cotangents)
        assert_same(pull_together(outputs, case.inputs, cotangents), exact, 1e-11)
        features = pull_together(outputs, case.features, cotangents)
        assert_same(features, exact[: len(case.features)], 1e-11)


def test_cotangents_given_are_not_changed(monkeypatch):
    """Arithmetic in place is on temporaries only."""
    for cache in (2**19, 1):
        monkeypatch.setattr(rows_room, "CACHE_BYTES", cache)
        case = Case("middle")
        found = case.primitive()
        # features first in memory, as they come from another primitive
        cotangents = [
            one.movedim(0, -1)
            .transpose(0, -2)
            .contiguous()
            .transpose(0, -2)
            .movedim(-1, 0)
            for one in cotangents_of(found, 3)
        ]
        before = [one.clone() for one in cotangents]
        first = pull_together(found, case.features, cotangents)
        assert all(torch.equal(a, b) for a, b in zip(cotangents, before, strict=True))
        assert_same(pull_together(found, case.features, cotangents), first, 1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_training_through_batched_gradients(kind):
    case, results = Case(kind), []
    for number, outputs in enumerate((case.primitive(), case.plain())):
        torch.manual_seed(1)
        seeds = [one.requires_grad_() for one in cotangents_of(outputs, 3)]
        pull = pull_in_turn if number else pull_together
        gradients = pull(outputs, case.features, seeds, create_graph=True)
        loss = sum((row**2).sum() for row in gradients)
        loss = loss + sum((one**2).sum() for one in outputs)
        results.append(torch.autograd.grad(loss, [*seeds, *case.inputs]))
    assert_same(results[0], results[1], 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_any_kind(kind):
    case = Case(kind, n_atoms=2)
    update, n = case.update.parts(), len(case.features)
    activation = update.layers.activation

    def function(*tensors):
        s, ds, *vectors = tensors[:n]
        v = None if len(vectors) == 1 else vectors[0]
        mix, *flat = tensors[n:]
        own = Update(mix, Layers.of(activation, flat[:4]), update.epsilon)
        context = Layers.of(activation, flat[4:]) if flat[4:] else None
        return painn_node((s, ds), (v, vectors[-1]), own, context)

    flat = update.layers.flat()
    if case.context is not None:
        flat += case.context.layers().flat()
    inputs = (*case.features, update.mix, *flat)
    assert gradcheck(function, inputs, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_have_no_gradient(kind):
    case = Case(kind)
    with chained(frozen=True):
        found = case.primitive()
    expected = case.plain()
    cotangents = cotangents_of(found, 3)
    rows = pull_together(found, case.features, cotangents)
    assert_same(rows, pull_in_turn(expected, case.features, cotangents), 1e-11)
    total = sum(one.sum() for one in found)
    unused = torch.autograd.grad(total, case.parameters, allow_unused=True)
    assert unused == (None,) * len(case.parameters)


@pytest.mark.parametrize("kind", ["middle", "last"])
def test_what_was_kept_is_not_differentiated(kind, monkeypatch):
    """Wrong vectors planted in what is kept change no second derivative."""
    case, results, run = Case(kind), [], room._run

    def planted(parts, epsilon):
        right = run(parts, epsilon)
        return right if torch.is_grad_enabled() else right._replace(mixed=right.mixed + 9)

    for stale in (False, True):
        if stale:
            monkeypatch.setattr(room, "_run", planted)
        (s, *_) = case.primitive()
        (row,) = torch.autograd.grad(s.sum(), case.dv, create_graph=True)
        again = torch.autograd.grad((row**2).sum(), case.inputs, materialize_grads=True)
        results.append((row, *again))
    assert_same(results[1], results[0], 1e-13)
    (s, *_) = case.primitive()
    (first,) = torch.autograd.grad(s.sum(), case.dv)
    assert not torch.allclose(first, results[0][0])  # it was planted where it is used


def test_vectors_of_no_length():
    """The slope of a length is finite at zero, and so is its derivative."""
    case = Case("middle")
    case.v, case.dv = (torch.zeros_like(case.dv).requires_grad_() for _ in range(2))
    found, expected = case.primitive(), case.plain()
    cotangents = cotangents_of(found, 3)
    rows = pull_together(found, case.inputs, cotangents)
    assert_same(rows, pull_in_turn(expected, case.inputs, cotangents), 1e-11)
    assert all(torch.isfinite(row).all() for row in rows)


def test_single_precision():
    case = Case("middle")
    exact = case.plain()
    cotangents = cotangents_of(exact, 3)
    slopes = pull_in_turn(exact, case.features, cotangents)
    for name in ("s", "ds", "v", "dv"):
        setattr(case, name, getattr(case, name).detach().float().requires_grad_())
    case.update.float()
    case.context.float()
    found = case.primitive()
    rows = pull_together(found, case.features, [one.float() for one in cotangents])
    assert_same(found, [one.float() for one in exact], 2e-6)
    assert_same(rows, [one.float() for one in slopes], 1e-5)
