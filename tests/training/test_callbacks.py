import math
import signal
import threading

import pytest

from gnnforce.training.callbacks import Interrupted, criterion, ctrl_c_noted
from gnnforce.training.fit import train
from gnnforce.training.module import TrainingError
from gnnforce.training.run_files import read_checkpoint

from .helpers import h2_frames, h2_graphs, lengths, make_module, settings, write_frames


def test_ctrl_c_is_noted_once_and_ends_at_the_second():
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_noted() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_receive_no_signals():
    found = []

    def work():
        with ctrl_c_noted() as pressed:
            found.append(pressed())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def test_criterion_has_the_weights_of_the_end_and_skips_what_is_not_labeled():
    late = [{"at": 0.5, "energy": 100.0}]
    options = {"weights": {"energy": 1, "forces": 3}, "weight_schedule": late}
    module = make_module(settings(training=options), h2_graphs([0.7]))

    def entry(rmse):
        return {"rmse": rmse, "count": 0 if rmse is None else 5}

    table = {
        "a": {"energy_per_atom": entry(0.1), "forces": entry(2.0), "stress": entry(None)},
        "b": {
            "energy_per_atom": entry(None),
            "forces": entry(1.0),
            "stress": entry(None),
        },
    }
    expected = 100 * 0.01 + 3 * 4 + 3 * 1
    assert criterion(table, module) == pytest.approx(expected)
    nothing = {"a": {n: entry(None) for n in ("energy_per_atom", "forces", "stress")}}
    assert criterion(nothing, module) is None


def test_best_is_the_epoch_with_the_least_criterion(tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr("gnnforce.training.callbacks.criterion", lambda *_: next(values))
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(8)))
    top = {"output": str(tmp_path / "run")}
    config = settings(
        {"train": str(data), "valid": 0.25}, training={"epochs": 3}, top=top
    )
    result = train(config, progress=False)
    assert result.metrics["best_epoch"] == 2
    assert read_checkpoint(tmp_path / "run" / "best.ckpt")["epoch"] == 2
    assert read_checkpoint(tmp_path / "run" / "last.ckpt")["best"]["stale"] == 1
    assert result.model.metadata["training"]["epoch"] == 2


def test_a_validation_error_that_is_not_finite_stops(tmp_path, monkeypatch):
    monkeypatch.setattr("gnnforce.training.callbacks.criterion", lambda *_: math.nan)
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(8)))
    top = {"output": str(tmp_path / "run")}
    with pytest.raises(TrainingError, match="validation error is not finite"):
        train(settings({"train": str(data), "valid": 0.25}, top=top), progress=False)


def test_without_validation_the_last_epoch_is_kept(tmp_path):
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(4)))
    top = {"output": str(tmp_path / "run")}
    config = settings(
        {"train": str(data), "valid": None},
        training={"epochs": 3},
        top=top,
    )
    result = train(config, progress=False)
    assert result.metrics["epochs"] == 3
    assert result.metrics["best_epoch"] == 3
    assert read_checkpoint(tmp_path / "run" / "best.ckpt")["epoch"] == 3
