"""Whole runs on two heads as tasks."""

import sys
from pathlib import Path

import pytest
import torch

from gnnforce.errors import ConfigError
from gnnforce.training import multitask
from gnnforce.training.fit import train
from gnnforce.training.logs import read_history

from .helpers import h2_frames, lengths, settings, write_frames
from .test_fit import CtrlC


@pytest.fixture
def run(tmp_path: Path):
    """Return a function that trains two heads, the second labeled in half the frames."""
    frames = h2_frames(lengths(12), "pbe")
    for atoms, other in zip(
        frames[::2], h2_frames(lengths(12), "ccsd")[::2], strict=True
    ):
        atoms.info["ccsd_energy"] = 0.5 * other.info["ccsd_energy"]
        atoms.arrays["ccsd_forces"] = 0.5 * other.arrays["ccsd_forces"]
    data = write_frames(tmp_path / "h2.xyz", frames)

    def make(folder: str, *, resume: bool = False, third: bool = False, **training):
        names = ["pbe", "ccsd", *(["again"] if third else [])]
        keys = {
            name: {"energy": f"{source}_energy", "forces": f"{source}_forces"}
            for name, source in zip(names, ["pbe", "ccsd", "pbe"], strict=False)
        }
        config = settings(
            {"train": str(data), "valid": 0.25, "heads": keys},
            model={"heads": {name: {"members": 2, "hidden": [4]} for name in names}},
            training={"learning_rate": 0.02} | training,
            top={"output": str(tmp_path / folder), "seed": 1},
        )
        return train(config, resume=resume, progress=False)

    return make


def test_without_torchjd_a_run_does_not_start(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnforce\[multitask\]'"):
        run("run", multitask={"combine": "upgrad"})
    run("plain", epochs=1, multitask={"weights": {"ccsd": 2.0}})  # needs no package


def improved(result) -> list[float]:
    rows = read_history(result.folder / "metrics.csv")
    keys = [f"valid_{head}_forces_rmse" for head in ("pbe", "ccsd")]
    return [float(rows[-1][key]) / float(rows[0][key]) for key in keys]


@pytest.mark.slow
@pytest.mark.parametrize("combine", ["upgrad", "pcgrad", "mgda"])
def test_a_run_learns_both_heads(run, combine):
    pytest.importorskip("torchjd")
    state = torch.get_rng_state()
    result = run("run", multitask={"combine": combine}, epochs=60)
    assert torch.equal(torch.get_rng_state(), state)
    assert max(improved(result)) < 0.7  # MGDA is the slowest
    text = (result.folder / "config.yaml").read_text()
    assert f"combine: {combine}" in text


def test_a_run_with_a_stand_in_learns_both_heads(run, monkeypatch):
    def stand_in(_):
        return lambda rows: rows.mean(0)

    monkeypatch.setattr(multitask, "torchjd_aggregator", stand_in)
    options = {"multitask": {"combine": "upgrad", "weights": {"ccsd": 2.0}}}
    result = run(
        "run", epochs=60, gradient_clip={"backbone": 1.0, "readouts": 0.1}, **options
    )
    assert max(improved(result)) < 0.3


def test_a_resumed_run_with_random_orders_ends_the_same(run, monkeypatch):
    pytest.importorskip("torchjd")
    options = {"multitask": {"combine": "pcgrad"}, "third": True, "epochs": 3}
    whole = run("whole", **options)
    CtrlC(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        run("parts", **options)
    torch.rand(7)
    parts = run("parts", resume=True, **options)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)
