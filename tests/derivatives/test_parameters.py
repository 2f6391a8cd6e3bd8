import pytest
import torch
from torch import nn

from gnnforce.derivatives.parameters import (
    call_with,
    fresh_leaves,
    parameter_gradients,
    pull_back_all,
)
from gnnforce.errors import UserError


def two_layers(dtype=torch.float64) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).to(dtype)


def backward_each(outputs, model):
    """The plain way: a backward for every output, into ``.grad``."""
    rows = {name: [] for name, _ in model.named_parameters()}
    for output in outputs:
        model.zero_grad(set_to_none=True)
        output.backward(retain_graph=True)
        for name, p in model.named_parameters():
            rows[name].append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    model.zero_grad(set_to_none=True)
    return {name: torch.stack(row) for name, row in rows.items()}


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [None, 1, 2, 7])
def test_two_layer_network(dtype, chunk):
    model = two_layers(dtype)
    outputs = model(torch.randn(4, dtype=dtype))
    expected = backward_each(outputs, model)
    got = parameter_gradients(outputs, dict(model.named_parameters()), chunk=chunk)
    shapes = [tuple(row.shape) for row in got.values()]
    assert shapes == [(2, 5, 4), (2, 5), (2, 2, 5), (2, 2)]
    for name, row in got.items():
        torch.testing.assert_close(row, expected[name])
        assert row.dtype == dtype
    assert all(p.grad is None for p in model.parameters())


def test_unbind_and_ones_sum_over_outputs_and_this_does_not():
    model = two_layers()
    outputs = model(torch.randn(4, dtype=torch.float64))
    parameters = dict(model.named_parameters())
    listed = list(parameters.values())
    got = parameter_gradients(outputs, parameters, keep=True)
    unbound = torch.autograd.grad(outputs.unbind(), listed, retain_graph=True)
    ones = torch.autograd.grad(outputs, listed, torch.ones_like(outputs))
    for row, first, second in zip(got.values(), unbound, ones, strict=True):
        torch.testing.assert_close(row.sum(0), first)
        torch.testing.assert_close(first, second)
        assert first.shape == row.shape[1:]
    last = got["2.bias"]  # each output has a bias of its own
    assert torch.equal(last, torch.eye(2, dtype=torch.float64))
    assert torch.equal(unbound[-1], torch.ones(2, dtype=torch.float64))


def test_against_jacrev():
    model = two_layers()
    x = torch.randn(3, 4, dtype=torch.float64)
    parameters = dict(model.named_parameters())
    expected = torch.func.jacrev(lambda p: torch.func.functional_call(model, p, (x,)))(
        {name: p.detach() for name, p in parameters.items()}
    )
    got = parameter_gradients(model(x), parameters, chunk=4)  # outputs of shape (3, 2)
    for name, row in got.items():
        assert row.shape == (3, 2, *parameters[name].shape)
        torch.testing.assert_close(row, expected[name])


def test_zeros_where_an_output_does_not_depend():
    a, b, c = (torch.ones(3, requires_grad=True) for _ in range(3))
    outputs = torch.stack([a.sum(), 2 * b.prod()])
    got = parameter_gradients(outputs, {"a": a, "b": b, "c": c})
    assert torch.equal(got["a"], torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert torch.equal(got["b"], torch.tensor([[0.0] * 3, [2.0] * 3]))
    assert torch.equal(got["c"], torch.zeros(2, 3))
    got["c"][0] += 1  # rows do not share memory
    assert torch.equal(got["c"][1], torch.zeros(3))


def test_grad_fields_that_exist_stay_and_the_graph_can_be_kept():
    model = two_layers()
    outputs = model(torch.randn(4, dtype=torch.float64))
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    parameter_gradients(outputs, dict(model.named_parameters()), keep=True)
    assert all(bool((p.grad == 7).all()) for p in model.parameters())
    outputs.sum().backward()
    assert not all(bool((p.grad == 7).all()) for p in model.parameters())


def test_scalar_and_no_output_and_no_parameter():
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    assert parameter_gradients((w**2).sum(), {"w": w})["w"].tolist() == [4.0, 6.0]
    assert parameter_gradients(w[:0] * 1, {"w": w})["w"].shape == (0, 2)
    assert parameter_gradients(w * 2, {}) == {}


def test_refused():
    model = two_layers()
    x = torch.randn(4, dtype=torch.float64)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        outputs = model(x)
    with pytest.raises(UserError, match=r"torch.no_grad\(\)"):
        parameter_gradients(outputs, parameters)
    with pytest.raises(UserError, match="chunk must be at least 1, not 0"):
        parameter_gradients(model(x), parameters, chunk=0)
    model[0].weight.requires_grad_(requires_grad=False)
    with pytest.raises(UserError, match=r"'0.weight' does not require a gradient"):
        parameter_gradients(model(x), parameters)
    del parameters["0.weight"]
    assert list(parameter_gradients(model(x), parameters)) == list(parameters)


class NoRule(torch.autograd.Function):
    """A doubling whose backward pass is itself, and that says nothing of batches."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(_, grad):
        return NoRule.apply(grad)


def test_an_operation_without_a_rule_is_explained():
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(UserError, match=r"take chunk=1, or give .*generate_vmap_rule"):
        parameter_gradients(NoRule.apply(w), {"w": w})
    rows = parameter_gradients(NoRule.apply(w), {"w": w}, chunk=1)["w"]
    assert torch.equal(rows, 2 * torch.eye(3))


def test_leaves_share_memory_and_nothing_else():
    model = two_layers()
    model.requires_grad_(requires_grad=False)
    leaves = fresh_leaves(dict(model.named_parameters()))
    x = torch.randn(4, dtype=torch.float64)
    outputs = call_with(model, leaves, x)
    assert torch.equal(outputs, model(x))
    got = parameter_gradients(outputs, leaves)
    model.requires_grad_()
    expected = backward_each(model(x), model)
    for name, row in got.items():
        torch.testing.assert_close(row, expected[name])
    assert leaves["0.weight"].data_ptr() == model[0].weight.data_ptr()


def test_combinations_of_outputs():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (rows,) = pull_back_all(x**2, [x], torch.tensor([[1.0, 0.0], [1.0, -1.0]]))
    assert rows.tolist() == [[2.0, 0.0], [2.0, -4.0]]
