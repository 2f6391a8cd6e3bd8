"""One session of training: the loop from where a run is to its end, or to Ctrl-C."""

import os
from dataclasses import dataclass

import torch

from gnnforce.errors import ConfigError
from gnnforce.training.batches import Frames
from gnnforce.training.callbacks import (
    Checkpoints,
    EarlyStop,
    Interruption,
    TimeLimit,
    Validation,
    ctrl_c_noted,
)
from gnnforce.training.engine import pl, quiet_lightning
from gnnforce.training.logs import EpochLines, HistoryTable, RunLog, TensorBoardLog
from gnnforce.training.module import TrainingModule
from gnnforce.training.progress import ProgressBar
from gnnforce.training.run_files import RunFiles
from gnnforce.training.sections import OptimConfig


@dataclass(frozen=True)
class Devices:
    """Where a run takes place.

    Attributes:
        accelerator: ``cpu`` or ``cuda``.
        per_node: Processes on every machine.
        nodes: Machines.
    """

    accelerator: str
    per_node: int
    nodes: int = 1

    @property
    def count(self) -> int:
        """Processes on all machines together."""
        return self.per_node * self.nodes


def choose_devices(options: OptimConfig) -> Devices:
    """Return where to run: what the launcher (torchrun) says, else the options."""
    accelerator = {"cpu": "cpu", "gpu": "cuda"}.get(options.accelerator)
    if accelerator is None:
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    total = int(os.environ.get("WORLD_SIZE", "1"))
    if total > 1 and "LOCAL_WORLD_SIZE" in os.environ:
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        return Devices(accelerator, per_node, total // per_node)
    return Devices(accelerator, options.devices)


def check_devices(options: OptimConfig) -> None:
    """Refuse devices that are not there, before anything is done.

    Raises:
        ConfigError: Names the option.
    """
    devices = choose_devices(options)
    if devices.accelerator != "cuda":
        return
    if not torch.cuda.is_available():
        raise ConfigError(
            "training.accelerator is gpu, but torch sees no GPU here; use auto or cpu"
        )
    there = torch.cuda.device_count()
    if devices.per_node > there:
        raise ConfigError(
            f"training.devices asks for {devices.per_node} GPUs, but there are {there}"
        )


def run_session(
    module: TrainingModule, valid: Frames, files: RunFiles, log: RunLog, *, bar: bool
) -> str:
    """Train until the end of the run.

    Args:
        module: What is trained, at the position to go on from.
        valid: Validation graphs with label fields; may be empty.
        files: Where checkpoints and tables go.
        log: Where lines go.
        bar: Show a progress bar.

    Returns:
        Why it ended: ``"finished"``, ``"time"``, ``"early stop"``, or ``"interrupted"``
        when Ctrl-C was pressed during the last epoch.

    Raises:
        Interrupted: After Ctrl-C, once the state is saved.
        TrainingError: When the loss is not finite.
    """
    options = module.options
    patience = options.early_stopping
    early = EarlyStop(patience) if patience is not None and len(valid) > 0 else None
    if not TensorBoardLog.available():
        log.note("TensorBoard is not installed: no files for it")
    with ctrl_c_noted() as pressed, quiet_lightning():
        callbacks: list[pl.Callback] = [
            Interruption(files, pressed),
            Validation(valid, options.batch_size),
            *([early] if early is not None else []),
            TimeLimit(),
            EpochLines(log),
            HistoryTable(
                files, module.model.head_names, module.quantities, module.position
            ),
            *([TensorBoardLog(files)] if TensorBoardLog.available() else []),
            Checkpoints(files),
            *([ProgressBar(log.console)] if bar and log.console.is_terminal else []),
        ]
        trainer = make_trainer(module, callbacks, files)
        trainer.fit(module)
        if pressed():
            return "interrupted"
    if early is not None and early.stopped:
        return "early stop"
    return "time" if module.position.stopping else "finished"


def make_trainer(
    module: TrainingModule, callbacks: list[pl.Callback], files: RunFiles
) -> pl.Trainer:
    """Return a trainer that only loops: logs, checkpoints and bars are the callbacks'."""
    devices = choose_devices(module.options)
    epochs = module.options.epochs
    several = devices.count > 1
    return pl.Trainer(
        accelerator=devices.accelerator,
        devices=devices.per_node,
        num_nodes=devices.nodes,
        strategy="ddp" if several else "auto",
        max_epochs=-1 if epochs is None else epochs - module.position.epoch,
        callbacks=callbacks,
        default_root_dir=files.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
