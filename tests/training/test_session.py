"""The loop on several processes, and where it runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnnforce.errors import ConfigError
from gnnforce.training.fit import train
from gnnforce.training.run_files import RunFiles
from gnnforce.training.sections import OptimConfig
from gnnforce.training.session import Devices, check_devices, choose_devices, make_trainer

from .helpers import h2_frames, h2_graphs, make_module, settings, write_frames

SCRIPT = """
import sys, json, os
from gnnforce.training.config import load_config
from gnnforce.training.fit import train

if __name__ == "__main__":
    result = train(load_config(sys.argv[1], sys.argv[2:]), progress=False)
    weights = [p.sum().item() for p in result.model.parameters()]
    rank = os.environ.get("RANK", "0")
    with open(f"{result.folder}.rank{rank}.json", "w") as stream:
        json.dump([result.metrics["validation"], weights], stream)
"""
CONFIG = """
data: {train: train.xyz, valid: valid.xyz, allow_duplicates: true}
model: {backbone: schnet, n_features: 8, n_layers: 1, n_radial: 6, cutoff: 3.0,
        heads: {energy: {members: 2, hidden: [4]}}}
training: {epochs: 2, batch_size: 2, dtype: float64}
output: run
seed: 1
"""


def launch(folder: Path, name: str, *, processes: int) -> list:
    """Run the script, by torchrun for several processes; result of every rank."""
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
        command += ["--standalone"]
    command += ["go.py", "config.yaml", f"output={name}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        json.loads((folder / f"{name}.rank{rank}.json").read_text())
        for rank in range(processes)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("n_frames", [5, 1])
def test_two_processes_equal_one(n_frames, tmp_path):
    """Case C40: gloo on CPU, uneven numbers of frames, and fewer frames than processes."""
    lengths = [0.7, 0.75, 0.8, 0.9, 1.0][:n_frames]
    write_frames(tmp_path / "train.xyz", h2_frames(lengths))
    write_frames(tmp_path / "valid.xyz", h2_frames([x + 0.02 for x in lengths]))
    (tmp_path / "go.py").write_text(SCRIPT)
    (tmp_path / "config.yaml").write_text(CONFIG)
    ((errors, weights),) = launch(tmp_path, "one", processes=1)
    first, second = launch(tmp_path, "two", processes=2)
    assert first == second  # all ranks hold equal weights
    assert first[1] == pytest.approx(weights, rel=1e-8, abs=1e-10)
    for quantity in ("energy", "forces"):
        one, two = errors["energy"][quantity], first[0]["energy"][quantity]
        assert (
            two["count"] == one["count"] == n_frames * (6 if quantity == "forces" else 1)
        )
        assert two["mae"] == pytest.approx(one["mae"], abs=1e-10)
    names = [
        sorted(path.name for path in (tmp_path / n).iterdir()) for n in ("one", "two")
    ]
    assert names[0] == names[1]
    assert len(list((tmp_path / "two" / "tensorboard").iterdir())) == 1


def test_devices_are_those_of_the_launcher_or_the_options(monkeypatch):
    options = OptimConfig(accelerator="cpu", devices=3)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert choose_devices(options) == Devices("cpu", 3)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert choose_devices(options) == Devices("cpu", 4, 2)
    gpu = OptimConfig(accelerator="gpu")
    assert choose_devices(gpu).accelerator == "cuda"


@pytest.mark.parametrize(("there", "word"), [(0, "accelerator"), (2, "devices")])
def test_devices_that_are_not_there_are_refused(there, word, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    check_devices(OptimConfig(accelerator="cpu", devices=3))
    with pytest.raises(ConfigError, match=rf"training\.{word}"):
        check_devices(OptimConfig(accelerator="gpu", devices=3))


def test_the_trainer_writes_nothing_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = settings(training={"accelerator": "cpu"})
    module = make_module(config, h2_graphs([0.7, 0.8]))
    module.position.epoch = 1
    trainer = make_trainer(module, [], RunFiles(tmp_path / "run"))
    assert trainer.max_epochs == 1  # of two, one is done
    assert trainer.loggers == []
    assert trainer.checkpoint_callback is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_outside_the_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    data = write_frames(tmp_path / "train.xyz", h2_frames([0.7, 0.8, 0.9]))
    top = {"output": str(tmp_path / "run")}
    train(settings({"train": str(data), "valid": None}, top=top), progress=False)
    assert list((tmp_path / "here").iterdir()) == []
    assert {p.name for p in tmp_path.iterdir()} == {"here", "run", "train.xyz"}
