"""Radial basis functions of the edge length."""

import torch
from torch import Tensor


def bessel_basis(distances: Tensor, cutoff: float, n_radial: int) -> Tensor:
    r"""Evaluate sine-over-distance functions that vanish at the cutoff.

    .. math:: b_n(r) = \sqrt{\tfrac{2}{r_c}}\,\frac{\sin(n \pi r / r_c)}{r},
              \qquad n = 1 \ldots n_\mathrm{radial}

    The basis of PaiNN (arXiv 2102.03150) in the normalization of DimeNet
    (arXiv 2003.03123, eq. 7).

    Args:
        distances: Edge lengths in Angstrom, larger than zero, shape ``(n_edges,)``.
        cutoff: Radius ``r_c`` in Angstrom.
        n_radial: Number of functions.

    Returns:
        Shape ``(n_edges, n_radial)``.

    Example:
        >>> bessel_basis(torch.tensor([1.0, 2.0]), cutoff=2.0, n_radial=2)
        tensor([[ 1.0000e+00, -8.7423e-08],
                [-4.3711e-08,  8.7423e-08]])
    """
    order = torch.arange(
        1, n_radial + 1, device=distances.device, dtype=distances.dtype
    )  # (n_radial,)
    phase = distances[:, None] * (order * (torch.pi / cutoff))  # (n_edges, n_radial)
    return torch.sin(phase) * (((2 / cutoff) ** 0.5) / distances)[:, None]


def gaussian_basis(distances: Tensor, cutoff: float, n_radial: int) -> Tensor:
    r"""Evaluate Gaussians on an even grid between zero and the cutoff.

    .. math:: b_n(r) = \exp\!\left[-\frac{(r - \mu_n)^2}{2\,\Delta^2}\right],
              \qquad \mu_n = n\,\Delta,\; \Delta = \frac{r_c}{n_\mathrm{radial} - 1}

    The basis of SchNet (arXiv 1706.08566, section 3) with the width set to the spacing.

    Args:
        distances: Edge lengths in Angstrom, shape ``(n_edges,)``.
        cutoff: Radius ``r_c`` in Angstrom.
        n_radial: Number of functions, at least two.

    Returns:
        Values in (0, 1], shape ``(n_edges, n_radial)``.

    Example:
        >>> gaussian_basis(torch.tensor([0.0, 2.0]), cutoff=2.0, n_radial=3)
        tensor([[1.0000, 0.6065, 0.1353],
                [0.1353, 0.6065, 1.0000]])
    """
    width = cutoff / (n_radial - 1)
    centers = torch.arange(n_radial, device=distances.device, dtype=distances.dtype)
    return torch.exp(-0.5 * (distances[:, None] / width - centers) ** 2)


def bessel_slopes(distances: Tensor, cutoff: float, n_radial: int) -> Tensor:
    r"""Differentiate :func:`bessel_basis` with respect to the distance.

    .. math:: b_n'(r) = \sqrt{\tfrac{2}{r_c}}\,\Big[\frac{k_n \cos(k_n r)}{r}
              - \frac{\sin(k_n r)}{r^2}\Big], \qquad k_n = n \pi / r_c

    Args:
        distances: As for :func:`bessel_basis`.
        cutoff: Radius in Angstrom.
        n_radial: Number of functions.

    Returns:
        In 1/Angstrom times the unit of the basis, shape ``(n_edges, n_radial)``.

    Example:
        >>> bessel_slopes(torch.tensor([1.0]), cutoff=2.0, n_radial=2)
        tensor([[-1.0000, -3.1416]])
    """
    order = torch.arange(
        1, n_radial + 1, device=distances.device, dtype=distances.dtype
    )  # (n_radial,)
    k = order * (torch.pi / cutoff)
    phase = distances[:, None] * k
    scale = (((2 / cutoff) ** 0.5) / distances)[:, None]
    return scale * (k * torch.cos(phase) - torch.sin(phase) / distances[:, None])


def gaussian_slopes(distances: Tensor, cutoff: float, n_radial: int) -> Tensor:
    r"""Differentiate :func:`gaussian_basis` with respect to the distance.

    .. math:: b_n'(r) = -\frac{r - \mu_n}{\Delta^2}\,b_n(r)

    Args:
        distances: As for :func:`gaussian_basis`.
        cutoff: Radius in Angstrom.
        n_radial: Number of functions.

    Returns:
        In 1/Angstrom, shape ``(n_edges, n_radial)``.

    Example:
        >>> gaussian_slopes(torch.tensor([1.0]), cutoff=2.0, n_radial=3)
        tensor([[-0.6065, -0.0000,  0.6065]])
    """
    width = cutoff / (n_radial - 1)
    centers = torch.arange(n_radial, device=distances.device, dtype=distances.dtype)
    steps = distances[:, None] / width - centers
    return -steps / width * torch.exp(-0.5 * steps**2)
