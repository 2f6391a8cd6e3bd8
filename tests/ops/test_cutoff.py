import math

import pytest
import torch
from torch.autograd.gradcheck import gradgradcheck

from gnnforce.ops.cutoff import cosine_cutoff, polynomial_envelope, polynomial_slope

CUTOFF = 4.0


def derivatives(function, at: float, order: int) -> list[float]:
    """Value and derivatives at one distance, by automatic differentiation."""
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    y = function(x)
    values = [y.item()]
    for _ in range(order):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
        values.append(y.item())
    return values


@pytest.mark.parametrize("power", [2, 5, 6])
def test_envelope_equals_its_formula(power):
    r = torch.linspace(0.1, 3.9, 20, dtype=torch.float64)
    p, x = power, r / CUTOFF
    expected = (
        1
        - (p + 1) * (p + 2) / 2 * x**p
        + p * (p + 2) * x ** (p + 1)
        - p * (p + 1) / 2 * x ** (p + 2)
    )
    torch.testing.assert_close(polynomial_envelope(r, CUTOFF, power), expected)


@pytest.mark.parametrize("power", [2, 6])
def test_envelope_ends_with_two_derivatives(power):
    def envelope(r):
        return polynomial_envelope(r, CUTOFF, power)

    inside = derivatives(envelope, CUTOFF - 1e-9, 2)
    # the third derivative jumps: -p (p + 1) (p + 2) / r_c^3
    third = power * (power + 1) * (power + 2) / CUTOFF**3
    assert abs(inside[0]) < 1e-14
    assert abs(inside[1]) < 1e-13
    assert inside[2] == pytest.approx(third * 1e-9, rel=1e-3)
    for beyond in (CUTOFF, CUTOFF + 1e-9, 3 * CUTOFF):
        assert max(map(abs, derivatives(envelope, beyond, 2))) < 1e-14
    assert derivatives(envelope, 1e-12, 1) == [1.0, pytest.approx(0, abs=1e-11)]


def test_cosine_equals_its_formula():
    r = torch.tensor([0.0, 1.0, 2.0, 4.0, 5.0], dtype=torch.float64)
    expected = [1.0, 0.5 * (1 + math.sqrt(0.5)), 0.5, 0.0, 0.0]
    found = cosine_cutoff(r, CUTOFF)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_cosine_jumps_in_the_curvature():
    """Why the models do not use it."""
    _, slope, curvature = derivatives(
        lambda r: cosine_cutoff(r, CUTOFF), CUTOFF - 1e-9, 2
    )
    assert abs(slope) < 1e-8
    assert curvature == pytest.approx(math.pi**2 / (2 * CUTOFF**2))


@pytest.mark.parametrize("function", [polynomial_envelope, cosine_cutoff])
def test_derivatives_to_second_order(function):
    r = torch.linspace(0.3, 3.7, 5, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda x: function(x, CUTOFF), r)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_fall_from_one_to_zero(dtype):
    r = torch.linspace(0, CUTOFF, 200, dtype=dtype)
    for function in (polynomial_envelope, cosine_cutoff):
        values = function(r, CUTOFF)
        assert values.dtype == dtype
        slack = 1e-5 if dtype == torch.float32 else 1e-13
        assert values.max() <= 1
        assert values.min() > -slack
        assert (values.diff() < slack).all()


@pytest.mark.parametrize("power", [2, 5, 6])
def test_slope_equals_automatic_derivative(power):
    r = torch.linspace(0.1, 1.5 * CUTOFF, 40, dtype=torch.float64, requires_grad=True)
    envelope = polynomial_envelope(r, CUTOFF, power)
    (expected,) = torch.autograd.grad(envelope.sum(), r)
    found = polynomial_slope(r.detach(), CUTOFF, power)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not found[r > CUTOFF].any()
    assert polynomial_slope(r.detach().float(), CUTOFF, power).dtype == torch.float32
