"""What happens between steps: validation, checkpoints, early stop, Ctrl-C."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.training.batches import Frames, validation_batches
from gnnforce.training.engine import pl
from gnnforce.training.metrics import LABELED
from gnnforce.training.module import Best, TrainingError, TrainingModule
from gnnforce.training.run_files import RunFiles, write_checkpoint
from gnnforce.training.schedule import weights_at
from gnnforce.training.validation import validate


class Interrupted(Exception):  # noqa: N818  (not an error)
    """The user pressed Ctrl-C, and the state is saved."""


class Validation(pl.Callback):
    """Measures the averaged model after every epoch; must come before the others.

    Every process measures its own frames, none twice, and the sums are added, so that
    the result does not depend on the number of processes.

    Args:
        frames: Validation graphs with label fields; may be empty.
        batch_size: Frames at a time.
    """

    def __init__(self, frames: Frames, batch_size: int) -> None:
        self.frames = frames
        self.batch_size = batch_size
        self._batches: list[AtomGraph] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Join the frames once."""
        module = _ours(pl_module)
        self._batches = validation_batches(self.frames, self.batch_size, module.process)

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Validate, and compare with the best epoch."""
        module = _ours(pl_module)
        record = module.finish_epoch()
        module.record = record
        if len(self.frames) > 0:
            sums = validate(module.average, self._batches, module.quantities)
            if trainer.world_size > 1:
                torch.distributed.all_reduce(sums.sums)
            record.validation = sums.metrics()
            record.criterion = criterion(record.validation, module)
        if record.criterion is None:
            module.best = Best(None, record.epoch, 0, {})
            return
        _check(record.criterion)
        better = module.best.criterion is None or record.criterion < module.best.criterion
        if better:
            validation = record.validation or {}
            module.best = Best(record.criterion, record.epoch, 0, validation)
        else:
            module.best.stale += 1


class Checkpoints(pl.Callback):
    """Writes ``last.ckpt`` (everything) and ``best.ckpt`` (averaged weights).

    Args:
        files: Paths of the run.
    """

    def __init__(self, files: RunFiles) -> None:
        self.files = files

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Write both after every epoch; the best one when it is new."""
        module = _ours(pl_module)
        if trainer.is_global_zero:
            if module.best.stale == 0:
                content = {"average": module.average.state_dict()}
                write_checkpoint(content | {"epoch": module.best.epoch}, self.files.best)
            write_checkpoint(module.run_state(), self.files.last)
        trainer.strategy.barrier()  # other processes read what the first one writes


class EarlyStop(pl.Callback):
    """Stops after epochs without a better validation criterion.

    Args:
        patience: Number of such epochs.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.stopped = False

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Count."""
        if _ours(pl_module).best.stale >= self.patience:
            self.stopped = True
            trainer.should_stop = True


class TimeLimit(pl.Callback):
    """Ends the run when the module says that its time is over."""

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Stop."""
        if _ours(pl_module).position.stopping:
            trainer.should_stop = True


class Interruption(pl.Callback):
    """Turns Ctrl-C into a saved state and a clean end, between two steps.

    Args:
        files: Paths of the run.
        pressed: Tells whether Ctrl-C was pressed.
    """

    def __init__(self, files: RunFiles, pressed: Callable[[], bool]) -> None:
        self.files = files
        self.pressed = pressed

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,  # noqa: ANN401, ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Look before every step, all processes together."""
        pressed = self.pressed()
        if trainer.world_size > 1:
            shared = torch.tensor([float(pressed)], device=pl_module.device)
            torch.distributed.all_reduce(shared)
            pressed = bool(shared > 0)
        if not pressed:
            return
        if trainer.is_global_zero:
            write_checkpoint(_ours(pl_module).run_state(), self.files.last)
        raise Interrupted


@contextmanager
def ctrl_c_noted() -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C inside the block instead of raising; the second one ends at once.

    Only the main thread can receive signals; in any other the block changes nothing.

    Yields:
        A function that tells whether Ctrl-C was pressed.
    """
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:  # noqa: ARG001
        if pressed:
            raise Interrupted
        pressed.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def criterion(validation: dict[str, Any], module: TrainingModule) -> float | None:
    """Return the loss of the validation errors with the weights at the end of the run.

    The weights of the end are used throughout, so that epochs can be compared.

    Returns:
        Sum over heads of weighted mean square errors; None when nothing is labeled.
    """
    options = module.options
    of_heads = {} if options.multitask is None else options.multitask.weights
    weights = weights_at(1.0, options.weights, options.weight_schedule)
    terms = [
        of_heads.get(head, 1.0)
        * getattr(weights, name)
        * entries[_measured(name)]["rmse"] ** 2
        for head, entries in validation.items()
        for name in LABELED
        if entries[_measured(name)]["count"] and name in module.quantities
    ]
    return sum(terms) if terms else None


def _measured(quantity: str) -> str:
    return "energy_per_atom" if quantity == "energy" else quantity


def _check(value: float) -> None:
    if not math.isfinite(value):
        raise TrainingError(
            "the validation error is not finite: lower training.learning_rate, or look for "
            "absurd labels (data.forces_limit); the checkpoints before it are kept"
        )


def _ours(module: pl.LightningModule) -> TrainingModule:
    assert isinstance(module, TrainingModule)
    return module
