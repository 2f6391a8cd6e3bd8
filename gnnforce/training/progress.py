"""The progress bar: epoch, loss, validation errors and time left."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gnnforce.training.engine import pl
from gnnforce.training.metrics import describe_metrics
from gnnforce.training.module import TrainingModule


class ProgressBar(pl.Callback):
    """Shows how far a run is.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[left]} left  "),
            TextColumn("{task.fields[errors]}"),
        )
        self.bar = Progress(*columns, console=console, transient=True)
        self.task: TaskID | None = None
        self._start = (0.0, 0.0)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start."""
        if trainer.is_global_zero:
            assert isinstance(pl_module, TrainingModule)
            self._start = (pl_module.progress, pl_module.position.seconds)
            self.bar.start()
            self.task = self.bar.add_task("training", total=1.0, errors="", left="?")

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ANN401, ARG002
        batch: Any,  # noqa: ANN401, ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Move on."""
        if self.task is not None:
            assert isinstance(pl_module, TrainingModule)
            left = time_left(pl_module, *self._start)
            self.bar.update(
                self.task,
                completed=pl_module.progress,
                description=describe_epoch(pl_module),
                left=left,
            )

    def on_train_epoch_end(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,
    ) -> None:
        """Show the errors."""
        assert isinstance(pl_module, TrainingModule)
        record = pl_module.record
        if self.task is not None and record is not None:
            errors = "; ".join(describe_metrics(record.validation or {}, "validation"))
            self.bar.update(
                self.task, errors=f"loss {record.losses['total']:.3g}  {errors}"
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Stop."""
        self.close()

    def on_exception(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        exception: BaseException,  # noqa: ARG002
    ) -> None:
        """Stop."""
        self.close()

    def close(self) -> None:
        """Stop."""
        if self.task is not None:
            self.bar.stop()
            self.task = None


def describe_epoch(module: TrainingModule) -> str:
    """Say which epoch runs, and out of how many if that is known."""
    number, total = module.position.epoch + 1, module.options.epochs
    return f"epoch {number}" if total is None else f"epoch {min(number, total)}/{total}"


def time_left(module: TrainingModule, progress: float, seconds: float) -> str:
    """Say how long the run still takes.

    Args:
        module: The run.
        progress: Part of the run that was done when this session began.
        seconds: Wall time that was spent when it began.
    """
    spent, done = module.position.seconds - seconds, module.progress - progress
    if module.options.minutes is not None:
        left = 60 * module.options.minutes - module.position.seconds
    elif done > 0:
        left = spent * (1 - module.progress) / done
    else:
        return "?"
    minutes, rest = divmod(round(max(left, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
