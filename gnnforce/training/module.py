"""What one step and one epoch of training do, as a Lightning module."""

import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from gnnforce.errors import GradientError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.training.averaging import update_average
from gnnforce.training.batches import Frames, Position, Process, TrainingStream
from gnnforce.training.clipping import limit_gradient
from gnnforce.training.config import TrainingConfig
from gnnforce.training.engine import pl
from gnnforce.training.multitask import HeadTasks
from gnnforce.training.objective import Losses, Objective
from gnnforce.training.schedule import learning_rate, weights_at
from gnnforce.training.sections import OptimConfig

CHECK_EVERY = 20  # steps between looks at the loss on a device that looking would stall


class TrainingError(UserError):
    """Training cannot go on."""


@dataclass
class EpochRecord:
    """What an epoch came to.

    Attributes:
        epoch: Number of epochs done.
        step: Optimizer steps done.
        seconds: Wall time spent.
        learning_rate: Of the last step.
        losses: Mean training losses of the epoch by name.
        validation: Errors of the averaged model, as of ``ErrorSums.metrics``; None
            without validation frames.
        criterion: What the best epoch has least of; None without validation.
    """

    epoch: int
    step: int
    seconds: float
    learning_rate: float
    losses: dict[str, float]
    validation: dict[str, Any] | None = None
    criterion: float | None = None


@dataclass
class Best:
    """The best epoch so far.

    Attributes:
        criterion: Its criterion; None before the first validation.
        epoch: Its number.
        stale: Epochs since.
        validation: Its errors.
    """

    criterion: float | None = None
    epoch: int = 0
    stale: int = 0
    validation: dict[str, Any] = field(default_factory=dict)


class TrainingModule(pl.LightningModule):
    """Trains a force field and keeps a running mean of its weights.

    Args:
        model: The force field, in the dtype to train in.
        config: The run.
        frames: Training graphs with label fields.
        quantities: What has labels and a weight.

    Attributes:
        model: The weights that are trained.
        average: Their running mean, which is validated and saved.
        position: How far the run is.
        best: The best epoch so far.
        facts: What is known of the data, as plain values.
        record: What the last epoch came to.
    """

    def __init__(
        self,
        model: ForceField,
        config: TrainingConfig,
        frames: Frames,
        quantities: tuple[str, ...],
    ) -> None:
        super().__init__()
        self.model = model
        self.average = deepcopy(model).requires_grad_(requires_grad=False)
        self.config = config
        self.frames = frames
        self.quantities = quantities
        self.position = Position()
        self.best = Best()
        self.record: EpochRecord | None = None
        self.losses = torch.zeros(len(Losses._fields), dtype=torch.float64)
        self.facts: dict[str, Any] = {}
        self.plain_config = config.model_dump(mode="json")
        self._started = time.monotonic()
        self._spent_before = 0.0
        self._optimizer_state: dict[str, Any] | None = None

    # How far it is ----------------------------------------------------------------------

    @property
    def options(self) -> OptimConfig:
        """How the model is trained."""
        return self.config.training

    @property
    def process(self) -> Process:
        """Which of several processes this is."""
        return Process(self.trainer.global_rank, self.trainer.world_size)

    @property
    def n_batches(self) -> int:
        """Number of batches of an epoch."""
        return -(-len(self.frames) // self.options.batch_size)

    @property
    def progress(self) -> float:
        """Part of the run that is done, between 0 and 1."""
        if self.options.minutes is not None:
            return min(1.0, self.position.seconds / (60 * self.options.minutes))
        assert self.options.epochs is not None
        return min(1.0, self.position.step / (self.options.epochs * self.n_batches))

    def start_clock(self, spent: float) -> None:
        """Count wall time from now, on top of what was spent before."""
        self._started, self._spent_before = time.monotonic(), spent
        self.position.seconds = spent

    def _read_clock(self) -> None:
        """Update the wall time; the first process decides, so that all do the same."""
        seconds = self._spent_before + time.monotonic() - self._started
        if self.process.count > 1:
            shared = torch.tensor([seconds], dtype=torch.float64)
            shared = shared.to(self.device)
            torch.distributed.broadcast(shared, src=0)
            seconds = float(shared)
        self.position.seconds = seconds

    # What Lightning calls ---------------------------------------------------------------

    def train_dataloader(self) -> TrainingStream:
        """Return the batches, this process's share of each."""
        options = self.options
        stream = TrainingStream(
            self.frames,
            options.batch_size,
            self.config.seed,
            workers=options.workers,
            process=self.process,
        )
        stream.position = self.position
        return stream

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW over what can be trained; only matrices decay."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        groups = [
            {
                "params": [p for p in parameters if p.dim() >= 2],
                "weight_decay": self.options.weight_decay,
            },
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=self.options.learning_rate,
            amsgrad=self.options.amsgrad,
            fused=True,
        )

    def on_fit_start(self) -> None:
        """Make what depends on the number of processes and the device."""
        self.tasks = HeadTasks.of(self.model, self.options.multitask, self.config.seed)
        self.objective = Objective(
            self.model.outputs,
            self.options,
            self.config.seed,
            self.quantities,
            self.process,
        )
        self.losses = self.losses.to(self.device)

    def on_train_start(self) -> None:
        """Give the optimizer the state it had, when a run goes on."""
        if self._optimizer_state is not None:
            self.trainer.optimizers[0].load_state_dict(self._optimizer_state)
            self._optimizer_state = None

    def on_train_batch_start(self, batch: AtomGraph, batch_idx: int) -> None:  # noqa: ARG002
        """Set the learning rate."""
        self._read_clock()
        rate = learning_rate(self.position.step, self.progress, self.options)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def training_step(self, batch: AtomGraph, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Compute the loss of a batch."""
        options, step = self.options, self.position.step
        weights = weights_at(self.progress, options.weights, options.weight_schedule)
        if self.tasks is None:
            losses = self.objective(self.model, batch, step, weights)
        else:
            losses, self.tasks.losses = self.objective.by_head(
                self.model, batch, step, weights
            )
        self.losses += torch.stack(list(losses)).detach()
        if self.process.count == 1:
            return losses.total
        # gradients of processes are averaged, and their losses add up; every parameter
        # takes part, since processes wait for each other's gradients
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        nothing = torch.stack([0.0 * p.sum() for p in parameters]).sum()
        return losses.total * self.process.count + nothing

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """Differentiate the loss, or the loss of every head and combine."""
        if self.tasks is None:
            loss.backward(*args, **options)
            return
        try:
            self.tasks.backward(self.position.step)
        except GradientError as error:
            raise TrainingError(self._advice("the gradient of a head")) from error

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002
        """Clip the gradient, and stop before it spoils the weights."""
        try:
            norm = limit_gradient(self.model, self.options.gradient_clip)
        except GradientError as error:
            raise TrainingError(self._advice("the gradient")) from error
        looks = self.device.type == "cpu" or self.position.step % CHECK_EVERY == 0
        if looks and not bool(torch.isfinite(norm + self.losses.sum())):
            raise TrainingError(self._advice("the loss"))

    def on_train_batch_end(self, outputs: Any, batch: AtomGraph, batch_idx: int) -> None:  # noqa: ANN401, ARG002
        """Update the average and the position; stop when the time is over."""
        step = self.position.step
        update_average(self.average, self.model, self.options.ema_decay, step)
        self.position.step += 1
        self.position.batch += 1
        self._read_clock()
        if self.options.minutes is not None and self.progress >= 1:
            self.position.stopping = True

    # What is kept -----------------------------------------------------------------------

    def finish_epoch(self) -> EpochRecord:
        """Return what the epoch came to, and move the position past it."""
        done = max(1, self.position.batch)
        losses = self.losses / done
        if self.process.count > 1:
            torch.distributed.all_reduce(losses)
        values = dict(zip(Losses._fields, losses.tolist(), strict=True))
        if self.position.batch == self.n_batches:
            self.position.epoch += 1
            self.position.batch = 0
            self.losses.zero_()
        return EpochRecord(
            epoch=self.position.epoch,
            step=self.position.step,
            seconds=self.position.seconds,
            learning_rate=self.trainer.optimizers[0].param_groups[0]["lr"],
            losses=values,
        )

    def run_state(self) -> dict[str, Any]:
        """Return everything that going on needs, as tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.trainer.optimizers[0].state_dict(),
            "position": asdict(self.position) | {"stopping": False},
            "best": asdict(self.best),
            "losses": self.losses.cpu(),
            "config": self.plain_config,
            "facts": self.facts,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`run_state` returned; the clock goes on from there."""
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self._optimizer_state = state["optimizer"]
        self.position = Position(**state["position"])
        self.best = Best(**state["best"])
        self.losses = state["losses"].clone()
        self.start_clock(self.position.seconds)

    def _advice(self, what: str) -> str:
        return (
            f"{what} is not finite at step {self.position.step}: lower "
            "training.learning_rate or training.gradient_clip, look for absurd labels "
            "(data.forces_limit), or use training.loss=huber; the checkpoints before it "
            "are kept"
        )
