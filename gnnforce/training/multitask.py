"""Gradients of the losses of several heads, combined on the backbone."""

import torch
from torch import Tensor

from gnnforce.derivatives.tasks import (
    Aggregator,
    backward_tasks,
    torchjd_aggregator,
    with_seed,
)
from gnnforce.errors import ConfigError
from gnnforce.models.force_field import ForceField
from gnnforce.training.members import TASK_STREAM, uniform_numbers
from gnnforce.training.sections import MultitaskConfig, OptimConfig


class HeadTasks:
    """Takes the place of the backward pass when an aggregator combines the heads.

    The backbone's parameters are shared; those of readouts hold the members of all heads
    side by side, each of which has the gradient of its own head's loss.

    Attributes:
        losses: Of every head in the present step, shape ``(n_heads,)``.

    Args:
        model: The model.
        name: Of the aggregator.
        seed: Of the run; with the step it decides the order in which PCGrad goes through
            the heads, so that a run that was stopped goes on identically.
    """

    def __init__(self, model: ForceField, name: str, seed: int) -> None:
        self.aggregator: Aggregator = torchjd_aggregator(name)
        self.seed = seed
        self.shared = [p for p in model.backbone.parameters() if p.requires_grad]
        ours = {id(p) for p in model.backbone.parameters()}
        self.own = [
            p for p in model.parameters() if p.requires_grad and id(p) not in ours
        ]
        self.losses: Tensor | None = None

    @classmethod
    def of(
        cls, model: ForceField, options: MultitaskConfig | None, seed: int
    ) -> "HeadTasks | None":
        """Return the tasks of a run, or None when the losses are summed."""
        if options is None or options.combine == "sum":
            return None
        return cls(model, options.combine, seed)

    def backward(self, step: int) -> None:
        """Add the gradients of a step to ``.grad``.

        One head after the other: for a few heads that is quicker than all at once, since
        the losses on forces can then come from the quickest strategy.

        Raises:
            GradientError: When a gradient is not finite.
        """
        assert self.losses is not None
        losses, self.losses = self.losses, None
        aggregator = with_seed(self.aggregator, order_seed(self.seed, step))
        backward_tasks(losses, self.shared, self.own, aggregator, chunk=1)


def order_seed(seed: int, step: int) -> int:
    """Return a seed that differs for every run and step.

    Example:
        >>> order_seed(1, 2) == order_seed(1, 2), order_seed(1, 2) == order_seed(2, 1)
        (True, False)
    """
    steps = torch.tensor([step])
    return int(float(uniform_numbers(TASK_STREAM, seed, steps)) * 2**53)


def check_multitask(options: OptimConfig, n_processes: int) -> None:
    """Refuse an aggregator that cannot be used, before anything is done.

    Args:
        options: How is trained.
        n_processes: Number of training processes.

    Raises:
        ConfigError: When TorchJD is missing, or there are several processes.
    """
    tasks = options.multitask
    if tasks is None or tasks.combine == "sum":
        return
    torchjd_aggregator(tasks.combine)
    if n_processes > 1:
        raise ConfigError(
            f"training.multitask.combine={tasks.combine} needs the gradients of a whole "
            "batch in one process; set training.devices=1, or combine=sum"
        )
