"""What a run leaves behind for people and programs: log, CSV table, TensorBoard."""

import csv
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnforce.training.batches import Position
from gnnforce.training.engine import pl
from gnnforce.training.metrics import describe_metrics
from gnnforce.training.module import EpochRecord, TrainingModule
from gnnforce.training.run_files import RunFiles

MEASURED = ("energy", "energy_per_atom", "forces", "stress")


class RunLog:
    """Writes lines to the log file, and to standard error when they shall be seen.

    Args:
        path: The log file; None for a process that does not write.
        show: Also print.
        append: Go on with the file that is there.
    """

    def __init__(self, path: Path | None, *, show: bool, append: bool = False) -> None:
        self.path = path
        self.console = Console(stderr=True, quiet=not show, highlight=False)
        if path is not None and not append:
            path.write_text("", encoding="utf-8")

    def say(self, line: str) -> None:
        """Write one line, and print it."""
        self.note(line)
        if self.path is not None:
            self.console.print(line, markup=False, soft_wrap=True)

    def note(self, line: str) -> None:
        """Write one line to the file only."""
        if self.path is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(f"{stamp} {line}\n")


class EpochLines(pl.Callback):
    """Notes every epoch in the log.

    Args:
        log: Where to.
    """

    def __init__(self, log: RunLog) -> None:
        self.target = log  # Lightning sets 'log' of every callback

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Write one line."""
        if trainer.is_global_zero:
            record = record_of(pl_module)
            text = "; ".join(describe_metrics(record.validation or {}, "validation"))
            self.target.note(
                f"epoch {record.epoch} step {record.step} {record.seconds:.1f} s "
                f"rate {record.learning_rate:.2e} loss {record.losses['total']:.4e} "
                f"{text or 'no validation'}"
            )


class HistoryTable(pl.Callback):
    """Writes one row an epoch into ``metrics.csv``.

    Args:
        files: Paths of the run.
        heads: Names of the heads.
        quantities: What is trained.
        position: How far the run is; rows beyond it are dropped, since the run goes on
            from there.
    """

    def __init__(
        self,
        files: RunFiles,
        heads: list[str],
        quantities: tuple[str, ...],
        position: Position,
    ) -> None:
        self.path = files.history
        self.names = ["epoch", "step", "seconds", "learning_rate", "loss"]
        self.names += [f"loss_{name}" for name in quantities]
        self.names += [
            f"valid_{head}_{quantity}_{kind}"
            for head in heads
            for quantity in MEASURED
            if quantity.removesuffix("_per_atom") in quantities
            for kind in ("mae", "rmse")
        ]
        self.position = position

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Keep the rows up to where the run is."""
        if not trainer.is_global_zero:
            return
        rows = read_history(self.path) if self.path.is_file() else []
        kept = [row for row in rows if int(row["step"]) <= self.position.step]
        with self.path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, self.names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Add a row."""
        if trainer.is_global_zero:
            row = flat_record(record_of(pl_module))
            with self.path.open("a", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, self.names, extrasaction="ignore")
                writer.writerow(row)


class TensorBoardLog(pl.Callback):
    """Writes the same numbers for TensorBoard, into the folder of the run.

    Args:
        files: Paths of the run.
    """

    def __init__(self, files: RunFiles) -> None:
        self.folder = files.tensorboard
        self.writer: Any = None

    @staticmethod
    def available() -> bool:
        """Tell whether TensorBoard is installed."""
        return find_spec("tensorboard") is not None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the file."""
        if trainer.is_global_zero:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (1 s)

            assert isinstance(pl_module, TrainingModule)
            step = pl_module.position.step
            self.writer = SummaryWriter(
                self.folder, purge_step=step + 1 if step else None
            )

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Add the numbers of the epoch."""
        if trainer.is_global_zero:
            row = flat_record(record_of(pl_module))
            for name, value in row.items():
                if value is not None and name not in ("epoch", "step"):
                    place = (
                        name.replace("_", "/", 1) if name.startswith("valid") else name
                    )
                    self.writer.add_scalar(place, value, row["step"])

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Close the file."""
        self.close()

    def on_exception(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        exception: BaseException,  # noqa: ARG002
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def flat_record(record: EpochRecord) -> dict[str, Any]:
    """Put a record into one row of plain values."""
    row: dict[str, Any] = {
        "epoch": record.epoch,
        "step": record.step,
        "seconds": round(record.seconds, 3),
        "learning_rate": record.learning_rate,
        "loss": record.losses["total"],
    }
    row |= {f"loss_{n}": value for n, value in record.losses.items() if n != "total"}
    for head, entries in (record.validation or {}).items():
        for quantity, entry in entries.items():
            for kind in ("mae", "rmse"):
                row[f"valid_{head}_{quantity}_{kind}"] = entry[kind]
    return row


def read_history(path: Path) -> list[dict[str, str]]:
    """Read the rows of ``metrics.csv``."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def record_of(module: pl.LightningModule) -> EpochRecord:
    """Return what the last epoch came to."""
    assert isinstance(module, TrainingModule)
    assert module.record is not None
    return module.record
