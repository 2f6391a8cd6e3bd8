"""Limits of the gradient's norm, for named groups of parameters."""

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from gnnforce.errors import ConfigError, GradientError
from gnnforce.models.parameters import fits, nearest

Named = Iterable[tuple[str, Tensor]]


def clip_gradient_groups(
    parameters: Named, limits: Mapping[str, float]
) -> dict[str, float]:
    r"""Scale down the gradient of every group of parameters to its own largest norm.

    .. math:: g \leftarrow g\,\min\!\left(1, \frac{c}{\lVert g \rVert_2}\right)
              \quad\text{for every group by itself}

    Parameters that no pattern stands for keep their gradient; one without a gradient
    counts as zero.

    Args:
        parameters: Names and parameters, such as ``model.named_parameters()``.
        limits: Largest norm by pattern: a module (``"backbone"``), a name, or a
            shell pattern (``"readouts.*"``).

    Returns:
        Norms before clipping by pattern.

    Raises:
        ConfigError: For a pattern that fits nothing, patterns that overlap, or a limit
            that is not a number above zero.
        GradientError: When a norm is not finite; no gradient is changed then.

    Example:
        >>> net = torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1), "b": torch.nn.Linear(1, 1)})
        >>> for p in net.parameters():
        ...     p.grad = torch.full_like(p, 3.0)
        >>> norms = clip_gradient_groups(net.named_parameters(), {"a": 1.0})
        >>> round(norms["a"], 3), round(float(net["a"].bias.grad), 3)
        (4.243, 0.707)
    """
    for pattern, limit in limits.items():
        if not 0 < limit < math.inf:
            raise ConfigError(
                f"gradient clipping: the limit of {pattern!r} must be a number above 0, "
                f"not {limit}"
            )
    groups = parameter_groups(parameters, limits)
    found = {
        pattern: [p.grad for p in group if p.grad is not None]
        for pattern, group in groups.items()
    }
    norms = {
        pattern: float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        for pattern, gradients in found.items()
    }
    for pattern, norm in norms.items():
        if not math.isfinite(norm):
            raise GradientError(
                f"the gradient of the parameters {pattern!r} is not finite, and nothing "
                "was clipped; look for absurd labels, or lower the learning rate"
            )
    for pattern, gradients in found.items():
        if norms[pattern] > limits[pattern]:
            for gradient in gradients:
                gradient.mul_(limits[pattern] / norms[pattern])
    return norms


def parameter_groups(
    parameters: Named, patterns: Iterable[str]
) -> dict[str, list[Tensor]]:
    """Return the parameters that every pattern stands for.

    Raises:
        ConfigError: For a pattern that fits nothing, and two that fit
            the same parameter.
    """
    every = dict(parameters)
    result: dict[str, list[Tensor]] = {}
    taken: dict[str, str] = {}
    for pattern in patterns:
        names = [name for name in every if fits(pattern, name)]
        if not names:
            raise ConfigError(
                f"gradient clipping: no parameter fits {pattern!r}."
                + nearest(pattern, list(every))
            )
        for name in names:
            if name in taken:
                raise ConfigError(
                    f"gradient clipping: {taken[name]!r} and {pattern!r} both stand for "
                    f"the parameter {name}; every parameter has one limit at most"
                )
            taken[name] = pattern
        result[pattern] = [every[name] for name in names]
    return result


def limit_gradient(
    model: nn.Module, limits: Mapping[str, float] | float | None
) -> Tensor:
    """Clip the gradient of a model as a whole, or that of its groups.

    Returns:
        Norm of the whole gradient; before clipping unless there are groups.

    Raises:
        GradientError: When the norm of a group is not finite. That of the whole is for
            the caller to look at, since looking waits for the device.
    """
    if isinstance(limits, Mapping):
        clip_gradient_groups(model.named_parameters(), limits)
        limits = None
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm: Tensor = torch.nn.utils.clip_grad_norm_(
        parameters, math.inf if limits is None else limits
    )
    return norm


def check_clipping(
    model: nn.Module,
    limits: Mapping[str, float] | float | None,
    say: Callable[[str], None],
) -> None:
    """Refuse groups that the model has not, and tell which parameters have no limit.

    Raises:
        ConfigError: See :func:`parameter_groups`.
    """
    if not isinstance(limits, Mapping):
        return
    groups = parameter_groups(model.named_parameters(), limits)
    limited = {id(p) for group in groups.values() for p in group}
    free = [name for name, p in model.named_parameters() if id(p) not in limited]
    if free:
        say(
            f"training.gradient_clip names no limit for {len(free)} parameters "
            f"({free[0]}{', ...' if len(free) > 1 else ''}): they are not clipped"
        )
