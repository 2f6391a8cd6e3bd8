"""Envelopes that take an interaction smoothly to zero at the cutoff."""

import torch
from torch import Tensor


def polynomial_envelope(distances: Tensor, cutoff: float, power: int = 6) -> Tensor:
    r"""Switch from one to zero with two continuous derivatives at the cutoff.

    .. math::
        u(x) = 1 - \tfrac{(p+1)(p+2)}{2} x^p + p(p+2)\,x^{p+1}
               - \tfrac{p(p+1)}{2} x^{p+2}, \qquad x = r / r_c < 1

    Value, slope and curvature vanish at ``r_c`` (Gasteiger et al., DimeNet,
    arXiv 2003.03123, eq. 8). The cosine cutoff of SchNet and PaiNN has a jump in the
    curvature there, hence in Hessians, which is why it is not used.

    Args:
        distances: Edge lengths in Angstrom, any shape.
        cutoff: Radius ``r_c`` in Angstrom.
        power: Exponent ``p`` >= 2; larger keeps the value near one for longer.

    Returns:
        Weights in [0, 1], of the shape of ``distances``.

    Example:
        >>> polynomial_envelope(torch.tensor([0.0, 2.5, 5.0, 6.0]), cutoff=5.0)
        tensor([1.0000, 0.8555, 0.0000, 0.0000])
    """
    x = (distances / cutoff).clamp(max=1.0)
    p = power
    # Horner form: one power and a quadratic in x, instead of three powers
    quadratic = (p + 1) * (p + 2) / 2 + x * (-p * (p + 2) + x * (p * (p + 1) / 2))
    return 1 - x**p * quadratic


def polynomial_slope(distances: Tensor, cutoff: float, power: int = 6) -> Tensor:
    r"""Differentiate :func:`polynomial_envelope` with respect to the distance.

    .. math:: u'(r) = -\frac{p(p+1)(p+2)}{2\,r_c}\,x^{p-1}\,(1 - x)^2

    Args:
        distances: Edge lengths in Angstrom, any shape.
        cutoff: Radius ``r_c`` in Angstrom.
        power: Exponent ``p``.

    Returns:
        In 1/Angstrom, of the shape of ``distances``.

    Example:
        >>> polynomial_slope(torch.tensor([0.0, 2.5, 5.0, 6.0]), cutoff=5.0)
        tensor([-0.0000, -0.2625, -0.0000, -0.0000])
    """
    x = (distances / cutoff).clamp(max=1.0)
    factor = -power * (power + 1) * (power + 2) / (2 * cutoff)
    return factor * x ** (power - 1) * (1 - x) ** 2


def cosine_cutoff(distances: Tensor, cutoff: float) -> Tensor:
    r"""Switch from one to zero, with a continuous slope only.

    .. math:: f(r) = \tfrac12\,[1 + \cos(\pi r / r_c)] \quad (r < r_c)

    Args:
        distances: Edge lengths in Angstrom, any shape.
        cutoff: Radius ``r_c`` in Angstrom.

    Returns:
        Weights in [0, 1], of the shape of ``distances``.

    Example:
        >>> cosine_cutoff(torch.tensor([0.0, 2.5, 5.0]), cutoff=5.0)
        tensor([1.0000, 0.5000, 0.0000])
    """
    phase = (distances / cutoff).clamp(max=1.0) * torch.pi
    return 0.5 * (1 + torch.cos(phase))
