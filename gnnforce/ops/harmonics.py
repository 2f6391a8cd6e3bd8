"""Real harmonics of the edge direction, and their derivatives."""

import torch
from torch import Tensor

from gnnforce.errors import UserError

MAX_DEGREE = 2
S3 = 3**0.5


def harmonics(directions: Tensor, degree: int) -> Tensor:
    r"""Evaluate the real harmonics of one degree.

    .. math::
        Y_0 &= 1, \qquad Y_1 = (x, y, z) \\
        Y_2 &= (\sqrt3\,xy,\; \sqrt3\,yz,\; \tfrac12(3z^2 - 1),\; \sqrt3\,xz,\;
                \tfrac{\sqrt3}{2}(x^2 - y^2))

    in the normalization :math:`\sum_m Y_{lm}^2 = 1` on the unit sphere.

    Args:
        directions: Unit vectors, shape ``(n, 3)``.
        degree: ``l`` of 0, 1 or 2.

    Returns:
        Shape ``(n, 2 l + 1)``.

    Raises:
        UserError: For another degree.

    Example:
        >>> harmonics(torch.tensor([[0.0, 0.0, 1.0]]), 2)
        tensor([[0., 0., 1., 0., 0.]])
    """
    if degree == 0:
        return torch.ones_like(directions[:, :1])
    if degree == 1:
        return directions
    if degree > MAX_DEGREE:
        raise UserError(f"harmonics exist up to degree {MAX_DEGREE}, not {degree}")
    x, y, z = directions.unbind(-1)
    return torch.stack(
        [
            S3 * x * y,
            S3 * y * z,
            1.5 * z * z - 0.5,
            S3 * x * z,
            0.5 * S3 * (x * x - y * y),
        ],
        dim=-1,
    )


def pull_harmonics(directions: Tensor, cotangents: Tensor, degree: int) -> Tensor:
    r"""Contract cotangents with the derivatives of the harmonics.

    .. math:: g_k = \sum_m c_m\, \partial Y_{lm} / \partial u_k

    with the harmonics taken as the polynomials of :func:`harmonics`; what points along
    ``u`` is projected out by whoever keeps ``u`` a unit vector.

    Args:
        directions: Unit vectors ``u``, shape ``(n, 3)``.
        cotangents: ``c``, shape ``(2 l + 1, n, n_outputs)``.
        degree: ``l``.

    Returns:
        Shape ``(3, n, n_outputs)``.

    Example:
        >>> u = torch.tensor([[0.0, 0.0, 1.0]])
        >>> pull_harmonics(u, torch.ones(5, 1, 1), 2)[:, 0, 0]
        tensor([1.7321, 1.7321, 3.0000])
    """
    if degree == 0:
        return cotangents.new_zeros(3, *cotangents.shape[1:])
    if degree == 1:
        return cotangents
    x, y, z = directions.T[:, :, None]  # each (n, 1)
    xy, yz, zz, xz, xx = cotangents
    return torch.stack(
        [
            S3 * (y * xy + z * xz + x * xx),
            S3 * (x * xy + z * yz - y * xx),
            S3 * (y * yz + x * xz) + 3 * z * zz,
        ]
    )
