import torch

from gnnforce.nn.activations import ACTIVATIONS, shifted_softplus


def test_shifted_softplus_is_the_published_one():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    torch.testing.assert_close(shifted_softplus(x), torch.log(0.5 * x.exp() + 0.5))


def test_all_pass_through_the_origin():
    zero = torch.zeros(1, dtype=torch.float64)
    for function in ACTIVATIONS.values():
        assert abs(function(zero)) < 1e-15
