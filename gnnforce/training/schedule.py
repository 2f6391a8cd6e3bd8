"""What changes along a run: the learning rate and the weights of the losses.

Everything is a function of ``progress``, the part of the run that is done, between 0 and
1: steps over all steps, or elapsed over allowed wall time.
"""

import math
from collections.abc import Sequence

from gnnforce.errors import ConfigError
from gnnforce.training.sections import OptimConfig, StageConfig, WeightsConfig

LONGEST_WARMUP = 0.1  # of a run, however many steps are asked for
LONGEST_CHANGE = 0.1  # of a run, for a change of the weights


def learning_rate(step: int, progress: float, options: OptimConfig) -> float:
    r"""Return the learning rate of a step: a linear rise, then half a cosine.

    .. math:: \eta = \eta_\mathrm{max}\,
              \min\!\left(1, \max\!\left(\tfrac{s + 1}{s_w}, \tfrac{p}{0.1}\right)\right)
              \left[f + (1 - f) \tfrac12 (1 + \cos \pi p)\right]

    Args:
        step: Number ``s`` of optimizer steps done.
        progress: Part ``p`` of the run that is done, in [0, 1].
        options: Gives the highest rate, ``f`` (``final_rate``) and the steps of the rise
            ``s_w`` (``warmup_steps``), which takes no more than a tenth of the run.

    Returns:
        The learning rate.

    Example:
        >>> options = OptimConfig(learning_rate=1.0, warmup_steps=10, final_rate=0.5)
        >>> [round(learning_rate(*at, options), 3) for at in ((0, 0), (10, 0.5), (20, 1))]
        [0.1, 0.75, 0.5]
    """
    rise = progress / LONGEST_WARMUP
    if options.warmup_steps > 0:
        rise = max(rise, (step + 1) / options.warmup_steps)
    else:
        rise = 1.0
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    fall = options.final_rate + (1 - options.final_rate) * cosine
    return options.learning_rate * min(1.0, rise) * fall


def weights_at(
    progress: float, first: WeightsConfig, stages: Sequence[StageConfig]
) -> WeightsConfig:
    """Return the weights of the losses at a point of the run.

    A change is spread over the tenth of the run that follows its start (or half of what
    is left), in equal factors: a jump of the gradient, which the optimizer is not
    prepared for, would throw the energies off.

    Args:
        progress: Part of the run that is done.
        first: Weights at the start.
        stages: Changes, in the order in which they come.

    Returns:
        The weights.

    Example:
        >>> late = [StageConfig(at=0.75, energy=100.0)]
        >>> [weights_at(p, WeightsConfig(), late).energy for p in (0.75, 0.8, 0.85)]
        [1.0, 10.0, 100.0]
    """
    values = first.model_dump()
    for stage in stages:
        if progress > stage.at:
            part = (progress - stage.at) / min(LONGEST_CHANGE, (1 - stage.at) / 2)
            for name, new in stage.model_dump(exclude={"at"}, exclude_none=True).items():
                values[name] = _between(values[name], new, min(1.0, part))
    return WeightsConfig(**values)


def _between(old: float, new: float, part: float) -> float:
    if old > 0 and new > 0 and part < 1:
        return float(old * (new / old) ** round(part, 12))
    return old + (new - old) * part


def labels_in_use(options: OptimConfig) -> tuple[str, ...]:
    """Return the quantities that have a weight at some point of the run."""
    every = [options.weights, *options.weight_schedule]
    return tuple(
        name
        for name in WeightsConfig.model_fields
        if any((getattr(weights, name) or 0.0) > 0 for weights in every)
    )


def check_schedule(options: OptimConfig, quantities: Sequence[str]) -> None:
    """Refuse a part of the run in which there would be no loss.

    Args:
        options: The weights and their changes.
        quantities: What has labels.

    Raises:
        ConfigError: Names the part.
    """
    now = options.weights.model_dump()
    starts: list[tuple[str, WeightsConfig | StageConfig]] = []
    starts.append(("training.weights", options.weights))
    starts += [
        (f"training.weight_schedule (at {stage.at:g})", stage)
        for stage in options.weight_schedule
    ]
    for where, weights in starts:
        now |= weights.model_dump(exclude_none=True)
        if not any(now[name] > 0 for name in quantities):
            raise ConfigError(
                f"{where} leaves no weight for any label there is; give one of "
                f"{', '.join(quantities)} a weight above 0"
            )
