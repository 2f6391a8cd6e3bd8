import threading

import pytest
import torch

from gnnforce.errors import UserError
from gnnforce.ops.recompute import is_recomputing, recomputed, recomputing


@pytest.fixture
def net():
    """Two layers, ``(x, v) -> (x', v')``, and a function that runs them either way."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(3, 3).double() for _ in range(2)]

    def call(layer, x, v):
        turned = torch.tanh(layer(x))
        return turned * x, (turned if v is None else v * turned.cos())

    def run(x, *, again):
        v = None
        for layer in layers:
            if again:
                own = list(layer.parameters())

                def one(x, v, layer=layer):
                    return call(layer, x, v)

                x, v = recomputed(one, x, v, parameters=own)
            else:
                x, v = call(layer, x, v)
        return (x * v.exp()).sum(dim=1)

    parameters = [p for layer in layers for p in layer.parameters()]
    return run, parameters


def x_of(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)


def test_derivatives_of_three_orders_are_the_same(net):
    run, parameters = net
    found = []
    for again in (False, True):
        x = x_of()
        y = run(x, again=again)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
        last = torch.autograd.grad(second.sin().sum(), [x, *parameters])
        found.append([y, first, second, *last])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-12, atol=1e-14)


def test_gradgradcheck(net):
    run, _ = net
    assert torch.autograd.gradcheck(lambda x: run(x, again=True), x_of())
    assert torch.autograd.gradgradcheck(lambda x: run(x, again=True), x_of())


def test_a_loss_on_gradients_of_several_outputs(net):
    """What training on the forces of a committee does, output after output."""
    run, parameters = net
    found = []
    for again in (False, True):
        x = x_of()
        y = run(x, again=again)
        rows = [torch.autograd.grad(one, x, create_graph=True)[0] for one in y]
        loss = torch.stack(rows).pow(2).sum() + y.sum()
        found.append(torch.autograd.grad(loss, parameters))
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-12, atol=1e-14)


class Kept:
    """A tensor that a graph keeps, and how many numbers all of them have together."""

    alive = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Kept.alive += tensor.numel()

    def __del__(self):
        Kept.alive -= self.tensor.numel()


@pytest.mark.parametrize("again", [False, True])
def test_only_inputs_and_cotangents_are_kept(again):
    """A layer whose intermediate values are 1,000 times as large as its input."""

    def layer(x):
        return (x.expand(1000, *x.shape).sin().exp().sum(dim=0),)

    x = torch.ones(5, requires_grad=True)
    before = Kept.alive
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        (y,) = recomputed(layer, x) if again else layer(x)
        after_forward = Kept.alive - before
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        after_backward = Kept.alive - before
    assert slope.requires_grad
    if again:
        assert after_forward == 5
        assert after_backward <= 20
    else:
        assert after_forward >= 10_000
        assert after_backward >= 20_000


def test_gradients_that_nobody_asks_for_are_not_computed(net):
    run, parameters = net
    x = x_of()
    run(x, again=True).sum().backward(inputs=[x])
    assert all(p.grad is None for p in parameters)
    assert x.grad.abs().max() > 0


def test_what_does_not_need_a_gradient_gets_none():
    x, c = x_of(), torch.ones(3, dtype=torch.float64)
    (y,) = recomputed(lambda x, c: (x * c,), x, c)
    y.sum().backward()
    assert c.grad is None
    with torch.no_grad():
        (y,) = recomputed(lambda x: (x * 2,), x)
    assert not y.requires_grad


def test_an_unused_result_and_an_input_without_influence():
    x, z = x_of(), x_of(1)
    y, _ = recomputed(lambda x, z: (x * 2, z * 3), x, z)
    gradients = torch.autograd.grad(y.sum(), [x, z], create_graph=True)
    torch.testing.assert_close(gradients[0], torch.full_like(x, 2.0))
    torch.testing.assert_close(gradients[1], torch.zeros_like(z))


def test_transforms_are_refused_with_the_remedy():
    x = x_of()
    with pytest.raises(UserError, match="strategy='loop'"):
        torch.func.vmap(lambda x: recomputed(lambda x: (x * 2,), x)[0])(x)
    (y,) = recomputed(lambda x: (x.sin(),), x)

    def pull(g):
        return torch.autograd.grad(y, x, g, retain_graph=True)[0]

    with pytest.raises(UserError, match="strategy='loop'"):
        torch.func.vmap(pull)(torch.ones(2, 4, 3, dtype=torch.float64))


def test_the_context_is_the_threads_own():
    seen = []
    with recomputing():
        with recomputing(False):
            assert is_recomputing()
        thread = threading.Thread(target=lambda: seen.append(is_recomputing()))
        thread.start()
        thread.join()
    with recomputing(False):
        assert not is_recomputing()
    assert seen == [False]
    assert not is_recomputing()
