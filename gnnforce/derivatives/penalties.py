"""Penalties on the norm of a gradient between two sets of points, as terms of a loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from gnnforce.derivatives.strategies import pull_back
from gnnforce.errors import UserError


def gradient_penalty(
    function: Callable[[Tensor], Tensor],
    first: Tensor,
    second: Tensor,
    *,
    at: Tensor | torch.Generator,
    target: float = 1.0,
    one_sided: bool = False,
    strategy: str = "auto",
) -> Tensor:
    r"""Penalize gradients whose norm differs from a target, for every output.

    .. math:: P_n = \frac1S \sum_s \big(\lVert \nabla_x f_n(\hat x_s) \rVert_2 - k\big)^2,
              \qquad \hat x_s = x_s + t_s (x'_s - x_s)

    The interpolation penalty of Wasserstein critics (Gulrajani et al. 2017,
    arXiv:1704.00028, equation 3, with ``k = 1`` and uniform ``t``). Each output and
    each sample has a gradient and a norm of its own: squares are summed over the numbers
    of one sample only.

    Args:
        function: Turns points ``(n_samples, ...)`` into ``(n_samples,)`` or ``(n_samples,
            n_outputs)``. A sample must not depend on the others (no batch
            normalization), as in section 4 of the paper.
        first: Points ``x``, shape ``(n_samples, ...)``.
        second: Points ``x'``, same shape.
        at: Where between them: ``t`` of every sample, shape ``(n_samples,)``, or a
            generator (on the device of the points) that draws it uniformly from [0, 1).
        target: Norm ``k`` that costs nothing.
        one_sided: Only norms above the target cost.
        strategy: How outputs are differentiated, see ``gradients``.

    Returns:
        Shape ``(n_outputs,)``; ``(1,)`` for a function with one output. Differentiable
        with respect to what ``function`` depends on, not to the points; under
        ``no_grad`` just the values. The subgradient of a norm of zero is zero.

    Raises:
        UserError: For points of different shapes, no samples, ``at`` of another shape, a
            negative target, and a function whose result has another shape or no
            gradient.

    Example:
        >>> slopes = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
        >>> x, t = torch.zeros(6, 2), torch.linspace(0, 1, 6)
        >>> gradient_penalty(lambda x: x @ slopes.T, x, x + 1, at=t)
        tensor([16.,  0.])
    """
    trains = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        points = between(first, second, at).requires_grad_()
        values = _outputs(function(points), points)
        cotangents = _one_of_each(values)  # (n_outputs, n_samples, n_outputs)
        slopes = pull_back(
            values, points, cotangents, strategy=strategy, create_graph=trains
        )
        norms = torch.linalg.vector_norm(slopes.flatten(2), dim=2)
        costs = norm_costs(norms, target, one_sided=one_sided).mean(dim=1)
    return costs if trains else costs.detach()


def between(first: Tensor, second: Tensor, at: Tensor | torch.Generator) -> Tensor:
    """Return points between two sets of points, without a history.

    Args:
        first: Shape ``(n_samples, ...)``.
        second: Same shape.
        at: Part of the way for every sample, or a generator that draws it.

    Raises:
        UserError: For shapes that do not fit.

    Example:
        >>> between(torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([0.0, 0.25]))
        tensor([[0.0000],
                [0.2500]])
    """
    if first.shape != second.shape or first.dim() == 0:
        raise UserError(
            "the two sets of points must have one shape (n_samples, ...), but they have "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if first.shape[0] == 0:
        raise UserError("a penalty needs at least one sample, but there is none")
    part = parts_of_the_way(first.shape[0], at, first).to(first.dtype)
    part = part.view(-1, *[1] * (first.dim() - 1))
    start, end = first.detach(), second.detach()
    return start + part * (end - start)


def parts_of_the_way(n: int, at: Tensor | torch.Generator, like: Tensor) -> Tensor:
    """Return the given parts, or draw them uniformly from [0, 1).

    Args:
        n: How many.
        at: The parts, shape ``(n,)``, or a generator.
        like: Gives the device.

    Returns:
        Shape ``(n,)``, float64 when drawn.

    Raises:
        UserError: For parts of another shape.
    """
    if isinstance(at, torch.Generator):
        drawn = torch.rand(n, generator=at, dtype=torch.float64, device=at.device)
        return drawn.to(like.device)
    if not isinstance(at, Tensor) or at.shape != (n,):
        shape = tuple(at.shape) if isinstance(at, Tensor) else at
        raise UserError(
            f"at must be a tensor of shape ({n},), one part of the way for each sample, or "
            f"a torch.Generator, not {shape}"
        )
    return at.detach().to(like.device)


def norm_costs(norms: Tensor, target: float, *, one_sided: bool = False) -> Tensor:
    """Return the squared difference of norms and their target.

    Raises:
        UserError: For a target that is negative or not finite.

    Example:
        >>> norm_costs(torch.tensor([0.0, 3.0]), 1.0, one_sided=True)
        tensor([0., 4.])
    """
    if not 0 <= target < float("inf"):
        raise UserError(f"the target of a norm must be finite and >= 0, not {target}")
    excess = norms - target
    return (excess.clamp(min=0) if one_sided else excess) ** 2


def _outputs(values: Tensor, points: Tensor) -> Tensor:
    """Check what the function returned, and give it an axis of outputs."""
    n = points.shape[0]
    if not isinstance(values, Tensor) or values.dim() not in (1, 2) or len(values) != n:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values)
        raise UserError(
            f"the function must turn {n} samples into ({n},) or ({n}, n_outputs), not "
            f"{shape}"
        )
    if not values.requires_grad:
        raise UserError(
            "what the function returns does not depend on the points; does it detach "
            "them, or run under torch.no_grad()?"
        )
    return values if values.dim() == 2 else values[:, None]


def _one_of_each(values: Tensor) -> Tensor:
    """Cotangents that pick one output of every sample: samples do not mix, outputs would."""
    n_samples, n_outputs = values.shape
    unit = torch.eye(n_outputs, dtype=values.dtype, device=values.device)
    return unit[:, None, :].expand(n_outputs, n_samples, n_outputs)
