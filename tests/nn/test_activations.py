import pytest
import torch
from torch.autograd.gradcheck import gradcheck

from gnnforce.nn.activations import ACTIVATIONS, SLOPES, shifted_softplus


def test_shifted_softplus_is_the_published_one():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    torch.testing.assert_close(shifted_softplus(x), torch.log(0.5 * x.exp() + 0.5))


def test_all_pass_through_the_origin():
    zero = torch.zeros(1, dtype=torch.float64)
    for function in ACTIVATIONS.values():
        assert abs(function(zero)) < 1e-15


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("recorded", [False, True])
def test_slopes_equal_automatic_derivatives(name, recorded):
    """Also where silu takes a shortcut, because no derivative is recorded."""
    x = torch.linspace(-20, 20, 81, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(ACTIVATIONS[name](x).sum(), x)
    with torch.set_grad_enabled(recorded):
        found = SLOPES[name](x)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_can_be_differentiated(name):
    x = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    assert gradcheck(SLOPES[name], x)


def test_every_activation_has_its_slope():
    assert ACTIVATIONS.keys() == SLOPES.keys()
