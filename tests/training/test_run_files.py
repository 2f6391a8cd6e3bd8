import pytest
import torch

from gnnforce.errors import ModelFileError
from gnnforce.training.run_files import RunFiles, read_checkpoint, write_checkpoint


def test_a_checkpoint_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    write_checkpoint({"step": 1, "x": torch.ones(2)}, path)
    real = torch.save

    def half(content, target):
        real(content, target)
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint({"step": 2}, path)
    assert read_checkpoint(path)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_files_that_are_no_checkpoint(tmp_path):
    path = tmp_path / "x.ckpt"
    with pytest.raises(ModelFileError, match="no checkpoint"):
        read_checkpoint(path)
    path.write_text("words")
    (tmp_path / "words.ckpt").write_bytes(b"hello")  # KeyError in torch
    with pytest.raises(ModelFileError, match="truncated"):
        read_checkpoint(tmp_path / "words.ckpt")
    with pytest.raises(ModelFileError, match="truncated"):
        read_checkpoint(path)
    write_checkpoint({"x": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ModelFileError, match="truncated"):
        read_checkpoint(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(ModelFileError, match="no checkpoint of a training run"):
        read_checkpoint(path)
    torch.save({"format": "gnnforce-training", "format_version": 99}, path)
    with pytest.raises(ModelFileError, match="version 99"):
        read_checkpoint(path)


def test_only_files_of_a_run_are_removed(tmp_path):
    files = RunFiles(tmp_path)
    files.tensorboard.mkdir()
    for path in (files.model, files.last, files.tensorboard / "events.out.tfevents.1"):
        path.touch()
    (tmp_path / "mine.txt").touch()
    assert sorted(files.remove_earlier_run()) == [
        "events.out.tfevents.1",
        "last.ckpt",
        "model.pt",
    ]
    assert (tmp_path / "mine.txt").exists()


def test_what_a_killed_process_left_is_removed(tmp_path):
    files = RunFiles(tmp_path)
    names = ["last.ckpt", "last.ckpt.12.part", "best.ckpt.345.part", "mine.part"]
    for name in names:
        (tmp_path / name).touch()
    files.remove_parts()
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "mine.part"}
