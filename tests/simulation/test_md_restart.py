"""Runs that go on where they stopped."""

import json
from itertools import pairwise

import numpy as np
import pytest
from ase import Atoms
from ase.io import read

from gnnforce.errors import (
    DataError,
)
from gnnforce.simulation.md import run_md
from gnnforce.testing import systems


def solid():
    atoms = systems.skewed_pair()
    atoms.positions += [[0.1, 0, 0], [0, 0.05, 0]]
    return atoms


@pytest.mark.parametrize("ensemble", ["langevin", "nve", "npt"])
def test_restart_is_the_uninterrupted_run(model, tmp_path, ensemble):
    atoms = solid() if ensemble == "npt" else systems.water()
    options = {"ensemble": ensemble, "timestep_fs": 0.5, "log_every": 4, "seed": 3}
    whole = run_md(atoms, model, folder=tmp_path / "whole", steps=20, **options)
    run_md(atoms, model, folder=tmp_path / "parts", steps=10, **options)
    options["seed"] = 99  # the state of the generator continues, not the seed
    parts = run_md(
        atoms, model, folder=tmp_path / "parts", steps=10, restart=True, **options
    )
    assert (whole.step, parts.step) == (20, 20)
    assert whole.finished
    assert parts.finished
    np.testing.assert_allclose(parts.atoms.positions, whole.atoms.positions, atol=1e-12)
    momenta = [result.atoms.get_momenta() for result in (whole, parts)]
    np.testing.assert_allclose(momenta[0], momenta[1], atol=1e-12)
    np.testing.assert_allclose(parts.atoms.cell.array, whole.atoms.cell.array, atol=1e-12)
    assert abs(whole.atoms.positions - atoms.positions).max() > 1e-4
    for name in ("md.csv", "trajectory.extxyz"):
        texts = [(tmp_path / run / name).read_text() for run in ("whole", "parts")]
        assert texts[0] == texts[1]
    frames = read(tmp_path / "parts" / "trajectory.extxyz", index=":")
    assert [frame.info["step"] for frame in frames] == [0, 4, 8, 12, 16, 20]


def test_frames_after_a_crash_are_not_written_twice(model, tmp_path):
    options = {"log_every": 1, "seed": 4, "folder": tmp_path}
    run_md(systems.water(), model, steps=10, **options)
    state = (tmp_path / "restart.json").read_text()
    whole = run_md(systems.water(), model, steps=5, restart=True, **options)
    text = (tmp_path / "trajectory.extxyz").read_text()
    # as if the machine had died at step 15 with the state of step 10 on disk
    (tmp_path / "restart.json").write_text(state)
    again = run_md(systems.water(), model, steps=5, restart=True, **options)
    assert (tmp_path / "trajectory.extxyz").read_text() == text
    assert again.log()["step"].tolist() == list(range(16))
    np.testing.assert_array_equal(again.atoms.positions, whole.atoms.positions)


def test_restart_refuses_another_run(model, tmp_path):
    water = systems.water()
    with pytest.raises(DataError, match=r"restart\.json"):
        run_md(water, model, folder=tmp_path, steps=1, restart=True)
    run_md(water, model, folder=tmp_path, steps=2)
    for other, options in (
        (water, {"timestep_fs": 0.25}),
        (water, {"ensemble": "nve"}),
        (Atoms("OH", [[0, 0, 0], [1, 0, 0]]), {}),
    ):
        with pytest.raises(DataError, match="the run in"):
            run_md(other, model, folder=tmp_path, steps=1, restart=True, **options)
    (tmp_path / "trajectory.extxyz").write_text("")
    with pytest.raises(DataError, match="changed or removed"):
        run_md(water, model, folder=tmp_path, steps=1, restart=True)


def test_an_earlier_run_is_kept(model, tmp_path):
    first = run_md(systems.water(), model, folder=tmp_path, steps=3, seed=1)
    text = (tmp_path / "md.csv").read_text()
    for number in (1, 2):
        run_md(systems.water(), model, folder=tmp_path, steps=3, seed=1 + number)
        assert (tmp_path / f"previous_{number}" / "md.csv").is_file()
    assert (tmp_path / "previous_1" / "md.csv").read_text() == text
    assert (tmp_path / "md.csv").read_text() != text
    assert first.finished


def test_restart_file_is_plain_json(model, tmp_path):
    run_md(systems.water(), model, folder=tmp_path, steps=2)
    content = json.loads((tmp_path / "restart.json").read_text())
    assert content["step"] == 2
    assert not list(tmp_path.glob("*.part"))
    steps = read(tmp_path / "trajectory.extxyz", index=":")
    assert all(a.info["step"] < b.info["step"] for a, b in pairwise(steps))
