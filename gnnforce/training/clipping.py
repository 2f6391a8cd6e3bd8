"""Limits of the gradient's norm, for named groups of parameters."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

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


def unclipped(names: Sequence[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that no pattern stands for."""
    kinds = list(patterns)
    return [name for name in names if not any(fits(kind, name) for kind in kinds)]
