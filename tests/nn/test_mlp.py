import pytest
import torch

from gnnforce.nn.mlp import MLP, Dense, StackedMLP


@pytest.mark.parametrize("widths", [[5, 1], [5, 7, 1], [5, 7, 3, 2]])
def test_stack_equals_its_members_one_by_one(widths):
    stack = StackedMLP(4, widths).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    got = stack(x)
    assert got.shape == (4, 6, widths[-1])
    for member in range(4):
        alone = MLP(widths).double()
        layers = [layer for layer in alone if isinstance(layer, Dense)]
        with torch.no_grad():
            for layer, weight, bias in zip(
                layers, stack.weights, stack.biases, strict=True
            ):
                layer.weight.copy_(weight[member].T)
                layer.bias.copy_(bias[member, 0] + 0.1)
                bias[member] += 0.1
        torch.testing.assert_close(stack(x)[member], alone(x), rtol=1e-13, atol=1e-13)


def test_some_members():
    stack = StackedMLP(5, [3, 4, 1])
    x = torch.randn(2, 3)
    torch.testing.assert_close(stack(x, torch.tensor([3, 0])), stack(x)[[3, 0]])


def test_members_start_apart():
    values = StackedMLP(8, [4, 16, 1])(torch.ones(1, 4))[:, 0, 0]
    assert values.std() > 0.01


def test_no_rows():
    assert StackedMLP(2, [3, 4, 1])(torch.zeros(0, 3)).shape == (2, 0, 1)


def test_glorot_bound():
    layer = Dense(30, 50)
    assert layer.weight.abs().max() <= (6 / 80) ** 0.5
    assert layer.weight.abs().max() > 0.9 * (6 / 80) ** 0.5
    assert not layer.bias.any()


@pytest.mark.parametrize("members", [None, torch.tensor([2, 0])])
def test_rows_of_each_member(members):
    stack = StackedMLP(3, [4, 5, 1])
    n_members = 3 if members is None else 2
    rows = torch.randn(n_members, 6, 4)
    found = stack(rows, members)
    for number in range(n_members):
        expected = stack(rows[number], members)[number]
        torch.testing.assert_close(found[number], expected)
