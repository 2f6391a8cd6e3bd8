"""Activation functions by name."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]


def shifted_softplus(x: Tensor) -> Tensor:
    r"""Softplus through the origin, infinitely smooth.

    .. math:: \mathrm{ssp}(x) = \ln(\tfrac12 e^x + \tfrac12)

    From SchNet (arXiv 1706.08566, section 2.2).

    Args:
        x: Any shape.

    Returns:
        The shape of ``x``.

    Example:
        >>> shifted_softplus(torch.zeros(1))
        tensor([0.])
    """
    return functional.softplus(x) - math.log(2.0)


ACTIVATIONS: dict[str, Activation] = {
    "silu": functional.silu,
    "shifted_softplus": shifted_softplus,
    "tanh": torch.tanh,
}


def silu_slope(x: Tensor) -> Tensor:
    r"""Slope of silu: :math:`s\,[1 + x (1 - s)]` with the sigmoid ``s`` of ``x``.

    Example:
        >>> silu_slope(torch.zeros(1))
        tensor([0.5000])
    """
    if torch.is_grad_enabled():
        s = torch.sigmoid(x)
        return s * (1 + x * (1 - s))
    one = x.new_ones(()).expand_as(x)
    slope: Tensor = torch.ops.aten.silu_backward(one, x)  # one operation instead of five
    return slope


def tanh_slope(x: Tensor) -> Tensor:
    r"""Slope of tanh: :math:`1 - \tanh^2 x`.

    Example:
        >>> tanh_slope(torch.zeros(1))
        tensor([1.])
    """
    return 1 - torch.tanh(x) ** 2


SLOPES: dict[str, Activation] = {
    "silu": silu_slope,
    "shifted_softplus": torch.sigmoid,
    "tanh": tanh_slope,
}
