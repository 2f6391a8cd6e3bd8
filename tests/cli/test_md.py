"""``gnnforce md``: files, limits, restart and the summary."""

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.io import read, write

from gnnforce.simulation import md
from gnnforce.simulation.files import read_log
from gnnforce.simulation.monitor import UnstableError

QUICK = ["--steps", 12, "--log-every", 2, "--timestep", 0.2, "--no-plots"]


@pytest.fixture
def start(tmp_path):
    write(tmp_path / "start.xyz", [molecule("CH4"), molecule("H2O")])
    return tmp_path / "start.xyz"


def test_files_and_summary(run, committee, start, tmp_path):
    folder = tmp_path / "run"
    report = run("md", committee, start, "-o", folder, *QUICK, "--json").json()
    assert report["reason"] == "finished"
    assert report["steps"] == 12
    assert report["time_ps"] == pytest.approx(0.0024)
    log = read_log(folder)
    assert report["forces_std_max"] == log["forces_std_max"].max()
    assert report["temperature_mean"] == pytest.approx(log["temperature"].mean())
    frames = read(folder / "trajectory.extxyz", ":")
    assert len(frames) == 7
    assert frames[0].get_chemical_formula() == "CH4"
    assert {"md.csv", "final.xyz", "summary.json"} <= {p.name for p in folder.iterdir()}


def test_the_frame_to_start_from_can_be_chosen(run, committee, start, tmp_path):
    run("md", committee, start, "-o", tmp_path / "run", *QUICK, "--index", 1)
    assert read(tmp_path / "run" / "final.xyz").get_chemical_formula() == "H2O"


def test_the_picture(run, committee, start, tmp_path):
    words = ["md", committee, start, "-o", tmp_path / "run", "--steps", 4]
    assert run(*words).status == 0
    assert (tmp_path / "run" / "trajectory.png").read_bytes().startswith(b"\x89PNG")


def test_a_limit_on_the_uncertainty_stops_the_run(run, committee, start, tmp_path):
    folder = tmp_path / "run"
    words = ["md", committee, start, "-o", folder, *QUICK, "--max-force-std", 1e-9]
    result = run(*words)
    assert result.status == 0
    assert "above the limit 1e-09" in result.out
    assert (folder / "uncertain.xyz").exists()


def test_restart_goes_on_as_if_never_stopped(run, committee, start, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    half = ["--steps", 6, "--log-every", 2, "--timestep", 0.2, "--no-plots"]
    run("md", committee, start, "-o", whole, *QUICK)
    run("md", committee, start, "-o", parts, *half)
    report = run("md", committee, start, "-o", parts, *half, "--restart", "--json").json()
    assert report["steps"] == 12
    np.testing.assert_allclose(
        read(parts / "final.xyz").positions,
        read(whole / "final.xyz").positions,
        atol=1e-12,
    )


def test_a_run_that_falls_apart_has_status_one(
    run, committee, start, tmp_path, monkeypatch
):
    observe = md.observe

    def observe_until(atoms, step, timestep_fs):
        if step == 3:
            raise UnstableError("the energy is not finite")
        return observe(atoms, step, timestep_fs)

    monkeypatch.setattr(md, "observe", observe_until)
    result = run("md", committee, start, "-o", tmp_path / "run", *QUICK)
    assert result.status == 1
    assert "error: stopped at step 3: the energy is not finite" in result.err
    assert "last_good.xyz" in result.out


def test_c44_the_head_moves_the_atoms(run, three_heads, tmp_path):
    write(tmp_path / "atom.xyz", Atoms("H"))
    words = ["md", three_heads, tmp_path / "atom.xyz", *QUICK]
    for name, energy in {"pbe": -10.0, "cc": -30.0}.items():
        run(*words, "-o", tmp_path / name, "--head", name)
        assert np.all(read_log(tmp_path / name)["epot"] == energy)
    assert run(*words, "-o", tmp_path / "x", "--json").json()["head"] == "pbe"


def test_a_progress_bar_when_asked_for_on_standard_error(run, committee, start, tmp_path):
    words = ["md", committee, start, "-o", tmp_path / "run", *QUICK, "--json"]
    shown = run(*words, "--progress")
    assert "12/12" in shown.err
    assert "max std" in shown.err
    assert shown.json()["steps"] == 12
    assert run(*words).err == ""
