"""How far results of one strategy are from those of another."""

from collections.abc import Mapping

import torch
from torch import Tensor

# Largest difference relative to the largest number of the same kind; the rounding of
# sums over edges stays well below it, a wrong term does not
FORCES_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
GRADIENTS_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
SMALL_TENSOR = 1e-3  # of the largest norm; below it rounding of others' size shows


def differences(found: Tensor, expected: Tensor) -> tuple[float, float]:
    """Return the largest difference, absolute and relative to the largest number expected.

    Numbers that are not finite give infinity, as does any difference from zeros.

    Example:
        >>> differences(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
        (0.5, 0.25)
        >>> differences(torch.tensor([float("nan")]), torch.tensor([1.0]))
        (inf, inf)
    """
    if found.shape != expected.shape:
        return float("inf"), float("inf")
    if found.numel() == 0:
        return 0.0, 0.0
    found, expected = found.double(), expected.double()
    absolute = float((found - expected).abs().max())
    size = float(expected.abs().max())
    if absolute == 0.0:
        return 0.0, 0.0
    if not absolute < float("inf"):
        return float("inf"), float("inf")
    return absolute, absolute / size if size > 0 else float("inf")


def gradient_difference(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> float:
    r"""Return the largest relative difference of gradients, tensor by tensor.

    .. math:: \max_t \frac{\|g_t - g^0_t\|}{\max(\|g^0_t\|, 10^{-3} \max_u \|g^0_u\|)}

    Args:
        found: Gradients ``g`` by the name of the parameter.
        expected: Gradients ``g0``, the same names.

    Returns:
        Infinity when names differ or a number is not finite.

    Example:
        >>> gradient_difference({"w": torch.tensor([3.0])}, {"w": torch.tensor([2.0])})
        0.5
    """
    if set(found) != set(expected):
        return float("inf")
    norms = {name: float(one.double().norm()) for name, one in expected.items()}
    least = SMALL_TENSOR * max(norms.values(), default=0.0)
    worst = 0.0
    for name, one in expected.items():
        apart = float((found[name].double() - one.double()).norm())
        if not apart < float("inf"):
            return float("inf")
        if apart > 0:
            size = max(norms[name], least)
            worst = max(worst, apart / size if size > 0 else float("inf"))
    return worst
