"""Whole runs on a few frames of H2."""

import json
import signal
import warnings
from pathlib import Path

import pytest
import torch
import yaml

from gnnforce.errors import ConfigError, DataError, UserError
from gnnforce.models.checkpoint import load
from gnnforce.training.config import TrainingConfig, load_config
from gnnforce.training.fit import train
from gnnforce.training.logs import read_history
from gnnforce.training.module import TrainingError, TrainingModule
from gnnforce.training.run_files import read_checkpoint

from .helpers import h2_frames, lengths, settings, write_frames


@pytest.fixture
def config(tmp_path: Path):
    """Return a function that makes the configuration of a run on ten frames."""
    data = write_frames(tmp_path / "h2.xyz", h2_frames(lengths(10)))

    def make(folder: str = "run", **sections) -> TrainingConfig:
        data_section = {"train": str(data), "valid": 0.3} | sections.pop("data", {})
        model = {"heads": {"energy": {"members": 2, "hidden": [4]}}}
        model |= sections.pop("model", {})
        top = {"output": str(tmp_path / folder), "seed": 1} | sections.pop("top", {})
        return settings(data_section, model=model, top=top, **sections)

    return make


def test_a_run_leaves_its_files_and_a_model_that_predicts(config, capfd):
    result = train(config(training={"epochs": 3}), progress=False)
    assert capfd.readouterr() == ("", "")
    names = {path.name for path in result.folder.iterdir()}
    assert names == {
        *("model.pt", "best.ckpt", "last.ckpt", "config.yaml", "train.log"),
        *("metrics.csv", "metrics.json", "tensorboard"),
    }
    assert not (Path.cwd() / "lightning_logs").exists()
    model = load(result.model_path)
    assert model.metadata["untrained_heads"] == []
    facts = model.metadata["training"]["data"]
    assert facts["n_train"] == 7
    assert facts["labels"]["energy"]["counts"] == {"energy": 7, "forces": 7, "stress": 0}
    assert facts["labels"]["energy"]["units"]["energy"] == "eV"
    metrics = json.loads((result.folder / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(result.metrics))
    assert metrics["validation"]["energy"]["forces"]["count"] == 3 * 6
    rows = read_history(result.folder / "metrics.csv")
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    best = min(rows, key=lambda row: float(row["valid_energy_forces_rmse"]))
    assert best["epoch"] == str(metrics["best_epoch"])
    forces = metrics["validation"]["energy"]["forces"]
    assert forces["rmse"] == pytest.approx(float(best["valid_energy_forces_rmse"]))


def test_training_learns(config):
    options = {"epochs": 60, "learning_rate": 0.02, "derivative_members": 1}
    result = train(config(training=options), progress=False)
    rows = read_history(result.folder / "metrics.csv")
    first, last = (float(rows[i]["valid_energy_forces_rmse"]) for i in (0, -1))
    assert last < 0.3 * first


def test_what_is_shown(config, capfd):
    train(config(training={"epochs": 1}), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "energy in 10 of 10 frames" in err  # counts of labels
    assert "largest force" in err  # case C42
    assert "in frame" in err
    assert "7 frames for training, 3 for validation" in err
    assert "litlogger" not in err


def test_the_resolved_configuration_reproduces_the_run(config):
    """Case C43."""
    one = train(config(), progress=False)
    values = yaml.safe_load((one.folder / "config.yaml").read_text())
    assert values["training"]["weights"]["stress"] == 0  # nothing has a stress
    assert values["training"]["learning_rate"] == 0.005
    again = load_config(one.folder / "config.yaml", [f"output={one.folder}2"])
    two = train(again, progress=False)
    state = two.model.state_dict()
    assert all(torch.equal(x, state[n]) for n, x in one.model.state_dict().items())


class CtrlC:
    """Presses Ctrl-C after a number of steps."""

    def __init__(self, monkeypatch, step: int) -> None:
        original = TrainingModule.on_train_batch_end

        def pressing(module, *args):
            original(module, *args)
            if module.position.step == step and self.armed:
                self.armed = False
                signal.raise_signal(signal.SIGINT)

        self.armed = True
        monkeypatch.setattr(TrainingModule, "on_train_batch_end", pressing)


def assert_equal(one, other, path=""):
    """Compare nested states bit by bit, but for the clock."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            if key not in ("seconds", "config"):
                assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for number, (x, y) in enumerate(zip(one, other, strict=True)):
            assert_equal(x, y, f"{path}.{number}")
    else:
        assert one == other, path


@pytest.mark.parametrize("step", [4, 6, 9], ids=["boundary", "in epoch 2", "in epoch 3"])
def test_a_resumed_run_equals_one_that_was_not_stopped(step, config, monkeypatch):
    """Weights, average, optimizer, schedule, counters and order of the data."""
    options = {"epochs": 4, "bootstrap": "poisson"}
    whole = train(config("whole", training=options), progress=False)
    before = signal.getsignal(signal.SIGINT)
    CtrlC(monkeypatch, step)
    stopped = config("stopped", training=options)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, progress=False)
    assert signal.getsignal(signal.SIGINT) is before
    files = Path(stopped.output)
    assert read_checkpoint(files / "last.ckpt")["position"]["step"] == step
    assert (files / "model.pt").is_file()  # the best one so far
    assert "--resume" in (files / "train.log").read_text()
    resumed = train(stopped, resume=True, progress=False)
    states = [read_checkpoint(r.folder / "last.ckpt") for r in (whole, resumed)]
    assert states[0]["position"]["step"] == 16
    assert_equal(*states)
    assert_equal(whole.model.state_dict(), resumed.model.state_dict())
    tables = [read_history(r.folder / "metrics.csv") for r in (whole, resumed)]
    for rows in tables:
        for row in rows:
            del row["seconds"]
    assert tables[0] == tables[1]


def test_more_epochs_can_be_added(config):
    train(config(training={"epochs": 1}), progress=False)
    result = train(config(training={"epochs": 3}), resume=True, progress=False)
    assert result.metrics["epochs"] == 3
    again = train(config(training={"epochs": 3}), resume=True, progress=False)
    assert again.metrics["steps"] == result.metrics["steps"]
    assert_equal(again.model.state_dict(), result.model.state_dict())


def test_resuming_needs_a_run_with_the_same_options(config):
    with pytest.raises(ConfigError, match=r"no .*last\.ckpt"):
        train(config(), resume=True, progress=False)
    train(config(), progress=False)
    with pytest.raises(ConfigError, match="batch_size was 2 and is now 3"):
        train(config(training={"batch_size": 3}), resume=True, progress=False)


def test_time_is_kept_and_the_schedule_follows_it(config):
    limit = {"minutes": 0.02}
    result = train(config(training=limit), progress=False)
    assert 1.2 <= result.metrics["seconds"] < 3
    assert result.metrics["ending"] == "time"
    rows = read_history(result.folder / "metrics.csv")
    assert float(rows[-1]["learning_rate"]) < 0.1 * 0.005
    # the time spent counts
    again = train(config(training=limit), resume=True, progress=False)
    assert again.metrics["steps"] == result.metrics["steps"]
    more = train(config(training={"minutes": 0.04}), resume=True, progress=False)
    assert more.metrics["steps"] > result.metrics["steps"]
    assert 2.4 <= more.metrics["seconds"] < 4


def test_early_stop(config):
    options = {"epochs": 50, "early_stopping": 2, "learning_rate": 3.0}  # gets worse
    result = train(config(training=options), progress=False)
    assert result.metrics["ending"] == "early stop"
    assert result.metrics["epochs"] == result.metrics["best_epoch"] + 2


def test_a_loss_that_is_not_finite_stops_with_advice(config, monkeypatch):
    original = TrainingModule.training_step

    def spoiled(module, batch, number):
        loss = original(module, batch, number)
        return loss * float("nan") if module.position.step == 6 else loss

    monkeypatch.setattr(TrainingModule, "training_step", spoiled)
    settings = config(training={"epochs": 5})
    with pytest.raises(TrainingError, match=r"step 6.*learning_rate"):
        train(settings, progress=False)
    state = read_checkpoint(Path(settings.output) / "last.ckpt")
    assert state["position"]["step"] == 4  # the epoch before
    for part in (state["model"], load(Path(settings.output) / "model.pt").state_dict()):
        assert all(torch.isfinite(x).all() for x in part.values())


def test_an_earlier_run_is_replaced_and_said(config, capfd):
    train(config(training={"epochs": 3}), progress=False)
    result = train(config(training={"epochs": 1}), progress=True)
    assert "replacing an earlier run" in capfd.readouterr().err
    assert len(read_history(result.folder / "metrics.csv")) == 1


def test_nothing_of_the_process_changes(config):
    """Case C23."""
    import logging
    import os

    def state():
        return (
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_rng_state().tolist(),
            dict(os.environ),
            list(warnings.filters),
            list(logging.getLogger().handlers),
            signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM),
        )

    before = state()
    train(config(training={"epochs": 1, "threads": 1}), progress=False)
    assert state() == before


def test_seeds_are_local(config):
    """Two runs with one seed are equal, whatever the global random state is."""
    torch.manual_seed(1)
    one = train(config("one"), progress=False)
    torch.manual_seed(2)
    two = train(config("two"), progress=False)
    three = train(config("three", top={"seed": 2}), progress=False)
    assert_equal(one.model.state_dict(), two.model.state_dict())
    with pytest.raises(AssertionError):
        assert_equal(one.model.state_dict(), three.model.state_dict())


def test_resuming_with_other_frames_is_refused(config, tmp_path):
    """Case C33: a changed file."""
    train(config(), progress=False)
    write_frames(tmp_path / "h2.xyz", h2_frames(lengths(10, last=1.1)))
    with pytest.raises(DataError, match="train frames are not those of the run"):
        train(config(training={"epochs": 3}), resume=True, progress=False)
    frames = h2_frames(lengths(10))
    for atoms in frames:
        atoms.calc.results["energy"] += 1.0
    write_frames(tmp_path / "h2.xyz", frames)
    with pytest.raises(DataError, match="train labels are not those of the run"):
        train(config(training={"epochs": 3}), resume=True, progress=False)


@pytest.mark.parametrize(
    "mistake", [{"train": "nowhere.xyz"}, {"heads": {"energy": {"energy": "nope"}}}]
)
def test_a_mistake_in_the_data_costs_no_earlier_run(mistake, config, capfd):
    folder = train(config(training={"epochs": 1}), progress=False).folder
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(DataError):
        train(config(training={"epochs": 1}, data=mistake))
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert capfd.readouterr() == ("", "")


def test_only_the_error_is_said_when_validation_frames_cannot_be_used(
    config, tmp_path, capfd
):
    frames = h2_frames(lengths(3))
    for atoms in frames:
        atoms.numbers[1] = 2
        atoms.calc.atoms = atoms.copy()
    valid = write_frames(tmp_path / "he.xyz", frames)
    with pytest.raises(UserError, match="He"):
        train(config(data={"valid": str(valid)}))
    assert capfd.readouterr() == ("", "")
