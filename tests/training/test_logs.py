from importlib.util import find_spec

from gnnforce.training.batches import Position
from gnnforce.training.fit import train
from gnnforce.training.logs import (
    HistoryTable,
    RunLog,
    TensorBoardLog,
    flat_record,
    read_history,
)
from gnnforce.training.module import EpochRecord
from gnnforce.training.run_files import RunFiles

from .helpers import h2_frames, lengths, settings, write_frames


def test_lines_go_to_the_file_and_only_then_to_people(tmp_path, capsys):
    path = tmp_path / "train.log"
    log = RunLog(path, show=True)
    log.say("seen [1, 2]")
    log.note("not seen")
    RunLog(path, show=False, append=True).say("quiet")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "seen [1, 2]\n"
    lines = path.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "seen [1, 2]",
        "not seen",
        "quiet",
    ]
    RunLog(path, show=False)
    assert path.read_text() == ""


def test_a_process_that_does_not_write_is_silent(capsys):
    RunLog(None, show=True).say("nothing")
    assert capsys.readouterr().err == ""


def test_columns_are_those_of_the_heads_and_quantities(tmp_path):
    table = HistoryTable(RunFiles(tmp_path), ["a", "b"], ("energy",), Position())
    assert "loss_energy" in table.names
    assert "valid_b_energy_per_atom_rmse" in table.names
    assert not any("forces" in name for name in table.names)


def test_what_is_not_labeled_stays_empty(tmp_path):
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(4), "a"))
    valid = write_frames(tmp_path / "v.xyz", h2_frames([0.72], "a"))
    heads = {"a": {}, "b": {}}
    config = settings(
        {"train": str(data), "valid": str(valid), "heads": {"a": {"energy": "a_energy"}}},
        model={"heads": heads},
        top={"output": str(tmp_path / "run")},
    )
    train(config, progress=False)
    row = read_history(tmp_path / "run" / "metrics.csv")[0]
    assert float(row["valid_a_energy_rmse"]) > 0
    assert row["valid_b_energy_rmse"] == ""


def test_a_record_is_one_flat_row():
    losses = {"total": 3.0, "energy": 1.0, "forces": 2.0, "stress": 0.0}
    validation = {"a": {"forces": {"mae": 1.0, "rmse": 2.0, "count": 3}}}
    row = flat_record(EpochRecord(2, 10, 1.5, 1e-3, losses, validation))
    assert row["loss"] == 3.0
    assert row["loss_forces"] == 2.0
    assert row["valid_a_forces_rmse"] == 2.0


def test_tensorboard_is_left_out_when_it_is_not_installed(tmp_path, monkeypatch):
    """Case C60."""
    assert TensorBoardLog.available() == (find_spec("tensorboard") is not None)
    monkeypatch.setattr(TensorBoardLog, "available", staticmethod(lambda: False))
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(4)))
    top = {"output": str(tmp_path / "run")}
    config = settings(
        {"train": str(data), "valid": None}, training={"epochs": 1}, top=top
    )
    train(config, progress=False)
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert "TensorBoard is not installed" in (tmp_path / "run" / "train.log").read_text()
