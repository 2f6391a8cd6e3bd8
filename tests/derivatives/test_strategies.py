import pytest
import torch

from gnnforce.derivatives.strategies import STRATEGIES, choose_strategy, pull_back
from gnnforce.errors import UserError


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def make(x):
    """Three outputs on two graphs, one output without any dependence."""
    return torch.stack([(x**2).sum(1), torch.sin(x).sum(1), torch.ones(2).double()])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_contracts_the_jacobian(strategy):
    x, weights = random(2, 4).requires_grad_(), random(5, 3, 2, seed=1)
    jacobian = torch.autograd.functional.jacobian(make, x)  # (3, 2, 2, 4)
    expected = torch.einsum("cng,ngxk->cxk", weights, jacobian)
    got = pull_back(make(x), x, weights, strategy=strategy)
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)
    assert not got.requires_grad


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_dependence_gives_zeros(strategy):
    x = random(2, 4).requires_grad_()
    unit = torch.eye(3).double()
    for outputs in (torch.ones(3).double(), random(3).requires_grad_() * 2):
        assert not pull_back(outputs, x, unit, strategy=strategy).any()
    assert pull_back(make(x), x, random(0, 3, 2), strategy=strategy).shape == (0, 2, 4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_graph_is_kept_only_when_asked(strategy):
    x = random(2, 4).requires_grad_()
    outputs, weights = make(x), random(2, 3, 2)
    first = pull_back(outputs, x, weights, strategy=strategy, create_graph=True)
    second = torch.autograd.grad((first**2).sum(), x, retain_graph=True)[0]
    assert second.abs().min() > 0
    pull_back(outputs, x, weights, strategy=strategy)
    with pytest.raises(RuntimeError, match="second time"):
        pull_back(outputs, x, weights, strategy=strategy)


def test_auto():
    assert choose_strategy("auto", 1, 10) == "loop"
    assert choose_strategy("auto", 16, 300) == "batched"
    assert choose_strategy("auto", 16, 100_000) == "loop"


@pytest.mark.parametrize("name", ["lop", "", "CHAIN"])
def test_unknown(name):
    with pytest.raises(
        UserError, match=f"unknown strategy '{name}'; there are auto, loop"
    ):
        choose_strategy(name, 1, 1)
