from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.nn.activations import ACTIVATIONS, SLOPES
from gnnforce.nn.mlp import MLP
from gnnforce.ops import perceptron as room
from gnnforce.ops.mode import chained
from gnnforce.ops.perceptron import Activation, Layers, perceptron, run_layers

from .dense import assert_same, cotangents_of, pull_in_turn, pull_together

WIDTHS = [(3, 2), (3, 5, 2), (3, 5, 4, 2)]


def module_and_layers(widths, activation="silu", bias=True):
    """A plain module, and its parameters as the primitive takes them."""
    parts = []
    for n_in, n_out in pairwise(widths):
        parts += [nn.Linear(n_in, n_out, bias=bias).double()]
        parts += [MLP([1, 1, 1], activation)[1]]
    module = nn.Sequential(*parts[:-1])
    linears = [part for part in module if isinstance(part, nn.Linear)]
    layers = Layers(
        Activation(ACTIVATIONS[activation], SLOPES[activation]),
        tuple(one.weight for one in linears),
        tuple(one.bias for one in linears),
    )
    return module, layers


def rows(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", WIDTHS)
def test_as_a_plain_module(widths, activation, bias):
    """Values, and batched cotangents to rows and to every parameter."""
    module, layers = module_and_layers(widths, activation, bias)
    x = rows(6, 3)
    found, expected = [perceptron(x, layers)], [module(x)]
    assert_same(found, expected, 1e-14)
    cotangents = cotangents_of(found, 4)
    inputs = [x, *module.parameters()]
    exact = pull_in_turn(expected, inputs, cotangents)
    assert_same(pull_together(found, inputs, cotangents), exact, 1e-12)
    assert_same(pull_in_turn(found, inputs, cotangents), exact, 1e-12)
    assert_same(pull_together(found, [x], cotangents), exact[:1], 1e-12)


@pytest.mark.parametrize("widths", WIDTHS)
def test_derivatives_of_any_kind(widths):
    _, layers = module_and_layers(widths, "tanh")

    def function(x, *flat):
        return perceptron(x, Layers.of(layers.activation, flat))

    inputs = (rows(2, 3), *layers.flat())
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("widths", WIDTHS)
def test_training_through_batched_gradients(widths):
    module, layers = module_and_layers(widths)
    x, results = rows(6, 3), []
    for number, output in enumerate((perceptron(x, layers), module(x))):
        torch.manual_seed(1)
        seeds = cotangents_of([output], 4)
        pull = pull_in_turn if number else pull_together
        (row,) = pull([output], [x], seeds, create_graph=True)
        loss = (row**2).sum() + (output**2).sum()
        wanted = [x, *module.parameters()]
        results.append(torch.autograd.grad(loss, wanted, materialize_grads=True))
    assert_same(results[0], results[1], 1e-11)


def test_what_was_kept_is_not_differentiated(monkeypatch):
    """A stale value planted in what is kept changes no second derivative."""
    _, layers = module_and_layers((3, 5, 2))
    x, results = rows(6, 3), []
    run = room.run_layers

    def planted(x, layers):
        right = run(x, layers)
        if torch.is_grad_enabled():
            return right
        return right._replace(arguments=tuple(z + 100 for z in right.arguments))

    for stale in (False, True):
        if stale:
            monkeypatch.setattr(room, "run_layers", planted)
        y = perceptron(x, layers)
        (row,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        results.append((row, *torch.autograd.grad((row**2).sum(), x, retain_graph=True)))
    assert_same(results[1], results[0], 1e-13)
    (first,) = torch.autograd.grad(y.sum(), x)
    assert not torch.allclose(first, results[0][0])  # it was planted where it is used


@pytest.mark.parametrize("shape", [(3,), (2, 5, 3), (0, 3), (2, 0, 3)])
def test_any_leading_axes(shape):
    module, layers = module_and_layers((3, 5, 2))
    x = rows(*shape)
    found, expected = (
        perceptron(x.view(-1, 3) if len(shape) == 1 else x, layers),
        module(x),
    )
    found = found[0] if len(shape) == 1 else found
    assert_same([found], [expected], 1e-14)
    cotangents = cotangents_of([found], 2)
    assert_same(
        pull_together([found], [x], cotangents),
        pull_in_turn([expected], [x], cotangents),
        1e-12,
    )


def test_flat_parameters_come_back():
    _, layers = module_and_layers((3, 5, 2), bias=False)
    again = Layers.of(layers.activation, layers.flat())
    assert again.biases == (None, None)
    assert all(a is b for a, b in zip(again.weights, layers.weights, strict=True))


def test_run_keeps_what_passes_between_layers():
    module, layers = module_and_layers((3, 5, 2))
    x = rows(6, 3)
    run = run_layers(x, layers)
    assert_same([run.result, run.inputs[0]], [module(x), x], 1e-14)
    assert_same(run.arguments, [module[0](x)], 1e-14)
    assert_same(run.inputs[1:], [module[:2](x)], 1e-14)


def test_frozen_parameters_have_no_gradient():
    mlp = MLP([3, 5, 2]).double()
    x = rows(6, 3)
    with chained(frozen=True):
        found = mlp(x)
    (row,) = torch.autograd.grad(found.sum(), x, retain_graph=True)
    (expected,) = torch.autograd.grad(mlp(x).sum(), x)
    assert_same([row], [expected], 1e-13)
    unused = torch.autograd.grad(found.sum(), list(mlp.parameters()), allow_unused=True)
    assert unused == (None,) * 4
