"""A configuration to a trained model and a folder that documents it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnforce.errors import ConfigError
from gnnforce.models.force_field import ForceField
from gnnforce.training.batches import Frames, validation_batches
from gnnforce.training.callbacks import Interrupted
from gnnforce.training.clipping import check_clipping
from gnnforce.training.config import TrainingConfig, save_config
from gnnforce.training.engine import process_rank, thread_limit, untouched_environment
from gnnforce.training.labeled import Say
from gnnforce.training.logs import RunLog
from gnnforce.training.metrics import LABELED, describe_metrics
from gnnforce.training.module import TrainingError, TrainingModule
from gnnforce.training.multitask import check_multitask
from gnnforce.training.outcome import finished_model
from gnnforce.training.preparation import Prepared, prepare
from gnnforce.training.resuming import check_same_data, check_same_run
from gnnforce.training.run_files import RunFiles, read_checkpoint
from gnnforce.training.session import check_devices, choose_devices, run_session
from gnnforce.training.validation import validate


@dataclass(frozen=True)
class TrainingResult:
    """What a run gave.

    Attributes:
        model: The averaged weights of the best epoch, in evaluation mode.
        model_path: Its file.
        metrics: What ``metrics.json`` holds: errors on validation and test frames, and
            where the run ended.
        folder: The folder of the run.
    """

    model: ForceField
    model_path: Path
    metrics: dict[str, Any]
    folder: Path


def train(
    config: TrainingConfig, *, resume: bool = False, progress: bool = True
) -> TrainingResult:
    """Train a model.

    The folder ``config.output`` gets ``model.pt`` (averaged weights of the best epoch),
    ``best.ckpt`` and ``last.ckpt``, ``config.yaml`` (with every default), ``train.log``,
    ``metrics.csv``, ``metrics.json`` and ``tensorboard/``. An earlier run in the folder
    is replaced unless ``resume``.

    A run that is stopped and resumed ends with the same weights as one that is not. With
    ``training.minutes`` it goes on with the time that is left. Nothing of the process is
    changed: random states, default dtype, threads and warning filters stay.

    Args:
        config: The run, from :func:`~gnnforce.training.config.load_config`.
        resume: Go on from ``last.ckpt``; ``training.epochs`` and ``minutes`` may differ.
        progress: Print what happens and show a progress bar on standard error; without,
            nothing but the log file.

    Returns:
        The model and its errors.

    Raises:
        UserError: For data or options that cannot be used, and for a loss that is not
            finite; the last good checkpoint stays.
        KeyboardInterrupt: After Ctrl-C, once state and model are saved.
    """
    files = RunFiles(config.output)
    with untouched_environment(), thread_limit(config.training.threads):
        _make_folder(files, resume=resume)
        said: list[str] = []
        module, prepared = _start(config, files, said.append, resume=resume)
        log = _open(files, prepared.config, resume=resume, progress=progress)
        for line in said:
            log.say(line)
        try:
            ending = run_or_skip(module, prepared, files, log, progress=progress)
        except (Interrupted, TrainingError) as error:
            _save_what_there_is(module, prepared, files, log)
            if isinstance(error, Interrupted):
                log.say(
                    f"interrupted; to go on, train again with --resume ({files.last})"
                )
                raise KeyboardInterrupt from None
            log.note(f"stopped: {error}")  # the error itself is for the caller to show
            raise
        result = _finish(module, prepared, files, log, ending)
    if ending == "interrupted":
        raise KeyboardInterrupt
    return result


def run_or_skip(
    module: TrainingModule,
    prepared: Prepared,
    files: RunFiles,
    log: RunLog,
    *,
    progress: bool,
) -> str:
    """Train unless the run is over already, and return why it ended."""
    options = module.options
    if module.position.step > 0 and (
        module.progress >= 1.0
        if options.minutes is not None
        else module.position.epoch >= (options.epochs or 0)
    ):
        log.say("the run is over already; give more epochs or minutes to go on")
        return "finished"
    valid: Frames = prepared.valid if prepared.valid is not None else []
    return run_session(module, valid, files, log, bar=progress)


def _make_folder(files: RunFiles, *, resume: bool) -> None:
    """Find out early that the results have no place, or that there is nothing to resume."""
    if process_rank() != 0:
        return
    if resume and not files.last.is_file():
        raise ConfigError(
            f"cannot resume: there is no {files.last}; train without --resume first"
        )
    files.folder.mkdir(parents=True, exist_ok=True)


def _start(
    config: TrainingConfig, files: RunFiles, say: Say, *, resume: bool
) -> tuple[TrainingModule, Prepared]:
    """Prepare data and module, at the start or where the run was left.

    Nothing is written or removed: a mistake found here must not cost an earlier run.
    """
    begun = time.monotonic()
    check_devices(config.training)
    check_multitask(config.training, choose_devices(config.training).count)
    prepared = prepare(config, say)
    resolved = prepared.config
    module = TrainingModule(prepared.model, resolved, prepared.train, prepared.quantities)
    module.facts = prepared.facts
    check_clipping(prepared.model, resolved.training.gradient_clip, say)
    if resume:
        state = read_checkpoint(files.last)
        check_same_run(state["config"], module.plain_config)
        check_same_data(state["facts"], prepared.facts)
        module.restore(state)
        say(f"going on after epoch {module.position.epoch}, step {module.position.step}")
    else:
        module.start_clock(time.monotonic() - begun)
    n_weights = sum(p.numel() for p in prepared.model.parameters())
    say(f"{config.model.backbone} with {n_weights} weights, {describe(resolved)}")
    return module, prepared


def _open(
    files: RunFiles, resolved: TrainingConfig, *, resume: bool, progress: bool
) -> RunLog:
    """Open the log and make room for the run; the first process alone writes."""
    if process_rank() != 0:
        return RunLog(None, show=False)
    log = RunLog(files.log, show=progress, append=resume)
    files.remove_parts()
    if not resume and files.remove_earlier_run():
        log.say(f"replacing an earlier run in {files.folder}")
    save_config(resolved, files.config)
    return log


def describe(config: TrainingConfig) -> str:
    """Say in a few words how long and in what precision a run trains."""
    options = config.training
    length = f"{options.epochs} epochs"
    if options.minutes is not None:
        length = f"{options.minutes:g} minutes"
    return f"{options.dtype}, batches of {options.batch_size}, {length}"


def _save_what_there_is(
    module: TrainingModule, prepared: Prepared, files: RunFiles, log: RunLog
) -> None:
    """Write the best model so far, if an epoch was completed."""
    if process_rank() == 0 and files.best.is_file():
        finished_model(module, prepared, files).save(files.model)
        log.say(f"the best model so far (epoch {module.best.epoch}) is {files.model}")


def _finish(
    module: TrainingModule,
    prepared: Prepared,
    files: RunFiles,
    log: RunLog,
    ending: str,
) -> TrainingResult:
    """Save the model, test it, and write what came out."""
    model = finished_model(module, prepared, files)
    metrics: dict[str, Any] = {
        "ending": ending,
        "epochs": module.position.epoch,
        "steps": module.position.step,
        "seconds": round(module.position.seconds, 1),
        "best_epoch": module.best.epoch,
        "validation": module.best.validation or None,
        "untrained_heads": model.metadata["untrained_heads"],
    }
    first = process_rank() == 0
    for line in describe_metrics(module.best.validation, "validation"):
        log.say(f"validation, epoch {module.best.epoch}: {line}")
    if prepared.test is not None and first:
        batches = validation_batches(prepared.test, module.options.batch_size)
        metrics["test"] = validate(model, batches, LABELED).metrics()
        for line in describe_metrics(metrics["test"], "test"):
            log.say(f"test: {line}")
    if first:
        model.save(files.model)
        text = json.dumps(metrics, indent=2, allow_nan=False)
        files.metrics.write_text(text + "\n", encoding="utf-8")
    log.say(f"{ending} after {module.position.epoch} epochs: {files.model}")
    return TrainingResult(model, files.model, metrics, files.folder)
