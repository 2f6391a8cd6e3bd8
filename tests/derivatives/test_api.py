import pytest
import torch

from gnnforce.derivatives.api import gradients
from gnnforce.derivatives.strategies import STRATEGIES
from gnnforce.errors import UserError


@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
@pytest.mark.parametrize("n_outputs", [1, 3, 12])
def test_anybodys_model(strategy, n_outputs):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, n_outputs)
    ).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

    def outputs(x):
        return (model(x) ** 2).sum(0)

    expected = torch.autograd.functional.jacobian(outputs, x)
    got = gradients(outputs(x), x, strategy)
    assert got.shape == (n_outputs, 5, 4)
    torch.testing.assert_close(got, expected)
    assert not got.requires_grad


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_for_training(strategy):
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    x = torch.tensor([1.0, 5.0], requires_grad=True)
    rows = gradients(weight * x**2, x, strategy, create_graph=True)
    (slope,) = torch.autograd.grad((rows**2).sum(), weight)
    torch.testing.assert_close(slope, 8 * weight * x.detach() ** 2)


def test_refused():
    x = torch.ones(2)
    with pytest.raises(UserError, match="requires_grad_"):
        gradients(x**2, x)
    x.requires_grad_()
    with pytest.raises(UserError, match="flatten"):
        gradients((x**2)[None], x)
    with pytest.raises(UserError, match="unknown strategy"):
        gradients(x**2, x, "lopp")


def test_outputs_made_without_gradients_are_refused():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        y = x**2
    with pytest.raises(UserError, match="no_grad"):
        gradients(y, x)


@pytest.mark.parametrize("strategy", ["chain", "jacobian", "forward"])
def test_strategies_that_need_a_model(strategy):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(UserError) as error:
        gradients(x**2, x, strategy)
    assert str(error.value) == (
        f"strategy '{strategy}' needs to know the model: use ForceField.predict(graph, "
        f"strategy='{strategy}'). Any other outputs have auto, loop, batched"
    )
