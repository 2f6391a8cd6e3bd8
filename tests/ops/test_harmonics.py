import numpy as np
import pytest
import torch

from gnnforce.errors import UserError
from gnnforce.ops.harmonics import MAX_DEGREE, harmonics, pull_harmonics

DEGREES = list(range(MAX_DEGREE + 1))


def unit_vectors(n: int = 12) -> torch.Tensor:
    vectors = torch.randn(n, 3, dtype=torch.float64)
    return vectors / vectors.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("degree", DEGREES)
def test_addition_theorem(degree):
    """The product of two vectors' harmonics is a Legendre polynomial of their angle."""
    a, b = unit_vectors(), unit_vectors()
    products = (harmonics(a, degree) * harmonics(b, degree)).sum(dim=1)
    legendre = np.polynomial.legendre.Legendre.basis(degree)
    np.testing.assert_allclose(products, legendre((a * b).sum(dim=1)), atol=1e-14)


def test_order_of_components():
    x, y, z = unit_vectors().unbind(1)
    root = 3**0.5
    second = [
        root * x * y,
        root * y * z,
        (3 * z**2 - 1) / 2,
        root * x * z,
        root / 2 * (x**2 - y**2),
    ]
    u = torch.stack([x, y, z], dim=1)
    torch.testing.assert_close(harmonics(u, 2), torch.stack(second, dim=1))
    torch.testing.assert_close(harmonics(u, 1), u)
    assert torch.equal(harmonics(u, 0), torch.ones_like(u[:, :1]))


@pytest.mark.parametrize("degree", DEGREES)
def test_pull_equals_automatic_derivative(degree):
    u = unit_vectors()
    cotangents = torch.randn(2 * degree + 1, len(u), 4, dtype=torch.float64)
    found = pull_harmonics(u, cotangents, degree)
    assert found.shape == (3, len(u), 4)
    _, pull = torch.func.vjp(lambda u: harmonics(u, degree), u)
    for number in range(4):
        (row,) = pull(cotangents[..., number].T)
        torch.testing.assert_close(found[..., number].T, row, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("degree", DEGREES)
def test_pull_equals_central_differences(degree):
    u, step = unit_vectors(), 1e-5
    cotangents = torch.randn(2 * degree + 1, len(u), 1, dtype=torch.float64)
    found = pull_harmonics(u, cotangents, degree)[..., 0]
    for k in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[k]
        slope = (harmonics(u + shift, degree) - harmonics(u - shift, degree)) / (2 * step)
        expected = (slope * cotangents[..., 0].T).sum(dim=1)
        torch.testing.assert_close(found[k], expected, rtol=1e-10, atol=1e-10)


def test_other_degrees_are_refused():
    with pytest.raises(UserError, match="up to degree 2, not 3"):
        harmonics(unit_vectors(), 3)


@pytest.mark.parametrize("degree", DEGREES)
def test_no_directions(degree):
    nothing = torch.zeros(0, 3)
    assert harmonics(nothing, degree).shape == (0, 2 * degree + 1)
    cotangents = torch.zeros(2 * degree + 1, 0, 4)
    assert pull_harmonics(nothing, cotangents, degree).shape == (3, 0, 4)
