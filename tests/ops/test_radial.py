import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.ops.radial import (
    bessel_basis,
    bessel_slopes,
    gaussian_basis,
    gaussian_slopes,
)

CUTOFF, N = 5.0, 7
DISTANCES = torch.linspace(0.05, 4.95, 12, dtype=torch.float64)


def test_bessel_equals_its_formula():
    r = DISTANCES.numpy()[:, None]
    n = np.arange(1, N + 1)
    expected = np.sqrt(2 / CUTOFF) * np.sin(n * np.pi * r / CUTOFF) / r
    np.testing.assert_allclose(bessel_basis(DISTANCES, CUTOFF, N), expected, rtol=1e-12)


def test_bessel_is_orthonormal():
    """Spherical Bessel functions: the integral of b_n b_m r^2 is one or zero."""
    r, weight = np.polynomial.legendre.leggauss(60)
    r, weight = (r + 1) * CUTOFF / 2, weight * CUTOFF / 2
    values = bessel_basis(torch.from_numpy(r), CUTOFF, N).numpy()
    overlap = np.einsum("e,en,em->nm", weight * r**2, values, values)
    np.testing.assert_allclose(overlap, np.eye(N), atol=1e-12)


def test_bessel_at_the_cutoff():
    """Zero, with the slope sqrt(2 / r_c) (-1)^n n pi / r_c^2."""
    r = torch.tensor([CUTOFF], dtype=torch.float64, requires_grad=True)
    values = bessel_basis(r, CUTOFF, N)[0]
    assert values.abs().max() < 1e-14
    slopes = [
        float(torch.autograd.grad(value, r, retain_graph=True)[0]) for value in values
    ]
    n = np.arange(1, N + 1)
    expected = np.sqrt(2 / CUTOFF) * (-1.0) ** n * n * np.pi / CUTOFF**2
    np.testing.assert_allclose(slopes, expected, rtol=1e-12)


def test_gaussian_equals_its_formula():
    width = CUTOFF / (N - 1)
    expected = [
        [np.exp(-((r - n * width) ** 2) / (2 * width**2)) for n in range(N)]
        for r in DISTANCES.tolist()
    ]
    found = gaussian_basis(DISTANCES, CUTOFF, N)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gaussians_stand_on_an_even_grid():
    grid = torch.linspace(0, CUTOFF, N, dtype=torch.float64)
    values = gaussian_basis(grid, CUTOFF, N)
    torch.testing.assert_close(values.diagonal(), torch.ones(N, dtype=torch.float64))
    slope = torch.func.jacrev(lambda r: gaussian_basis(r, CUTOFF, N)[0, -1])(grid[-1:])
    assert slope.abs().max() < 1e-12


@pytest.mark.parametrize("basis", [bessel_basis, gaussian_basis])
def test_derivatives_shapes_and_precision(basis):
    r = DISTANCES[::3].clone().requires_grad_()
    assert gradcheck(lambda x: basis(x, CUTOFF, 3), r)
    assert gradgradcheck(lambda x: basis(x, CUTOFF, 3), r)
    assert basis(DISTANCES.float(), CUTOFF, 3).dtype == torch.float32
    assert basis(DISTANCES[:0], CUTOFF, 3).shape == (0, 3)
    exact, rounded = basis(DISTANCES, CUTOFF, N), basis(DISTANCES.float(), CUTOFF, N)
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("basis", "slopes"),
    [(bessel_basis, bessel_slopes), (gaussian_basis, gaussian_slopes)],
)
def test_slopes_equal_automatic_derivatives_and_differences(basis, slopes):
    found = slopes(DISTANCES, CUTOFF, N)
    ones = torch.ones_like(DISTANCES)
    _, exact = torch.func.jvp(lambda r: basis(r, CUTOFF, N), (DISTANCES,), (ones,))
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    step = 1e-4  # fourth order in the step
    far, near = (
        basis(DISTANCES + h, CUTOFF, N) - basis(DISTANCES - h, CUTOFF, N)
        for h in (2 * step, step)
    )
    differences = (8 * near - far) / (12 * step)
    torch.testing.assert_close(found, differences, rtol=1e-8, atol=1e-8)
    assert slopes(DISTANCES.float(), CUTOFF, 3).dtype == torch.float32
    assert slopes(DISTANCES[:0], CUTOFF, 3).shape == (0, 3)
