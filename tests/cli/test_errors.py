"""Mistakes of the user: one line that names the thing, on standard error, status 2."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.io import write

from .conftest import labeled

CONFIG = """
data: {{train: {data}, valid: 0.25, heads: {{energy: {{}}}}}}
model: {{backbone: schnet, n_features: 8, n_layers: 1, cutoff: 4.0, n_radial: 6}}
training: {{epochs: 1, batch_size: 2}}
output: {folder}
"""


@pytest.fixture
def config(tmp_path: Path, water: Path) -> Path:
    """Return a configuration that would train on the frames of water."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(data=water, folder=tmp_path / "run"))
    return path


@pytest.fixture
def file(tmp_path: Path, water: Path, committee: Path, config: Path, crystal: Path):
    """Return a function that makes one of the files of the cases below."""
    nan = molecule("H2O")
    nan.info["REF_energy"] = float("nan")
    helium = labeled(Atoms("OHe", [[0, 0, 0], [0, 0, 2]]), -1.0)
    makers: dict[str, Callable[[Path], object]] = {
        "empty.xyz": lambda path: path.touch(),
        "words.xyz": lambda path: path.write_text("these are words\nand no structure\n"),
        "empty.yaml": lambda path: path.touch(),
        "bare.xyz": lambda path: write(path, molecule("H2O")),
        "nan.xyz": lambda path: path.write_text(_with_nan(water)),
        "helium.xyz": lambda path: write(path, helium),
        "other.pt": lambda path: torch.save({"weights": torch.ones(3)}, path),
        "words.pt": lambda path: path.write_text("no model\n"),
        "hello.pt": lambda path: path.write_bytes(b"hello"),  # KeyError in torch
        "cut.pt": lambda path: path.write_bytes(committee.read_bytes()[:500]),
    }
    known = {"water": water, "model": committee, "config": config, "crystal": crystal}

    def make(name: str) -> str:
        if name in known:
            return str(known[name])
        path = tmp_path / name
        if name in makers:
            makers[name](path)
        return str(path)

    return make


def _with_nan(water: Path) -> str:
    """Return the text of the file with the energy of frame 3 not a number."""
    lines = water.read_text().splitlines()
    header = 3 * 5 + 1  # frames of 3 atoms are 5 lines long
    words = lines[header].split()
    lines[header] = " ".join(
        "energy=nan" if word.startswith("energy=") else word for word in words
    )
    return "\n".join(lines) + "\n"


# command line with <file> for files; words that the message must have
CASES = {
    # missing, empty, not what it should be
    "evaluate: data missing": ("evaluate <model> <nowhere.xyz>", ["nowhere.xyz"]),
    "predict: data missing": (
        "predict <model> <nowhere.xyz> -o <o.xyz>",
        ["nowhere.xyz"],
    ),
    "md: start missing": ("md <model> <nowhere.xyz> -o <md>", ["nowhere.xyz"]),
    "info: missing": ("info <nowhere.xyz>", ["nowhere.xyz"]),
    "info: model missing": ("info <nowhere.pt>", ["nowhere.pt"]),
    "train: config missing": ("train <nowhere.yaml>", ["nowhere.yaml"]),
    "train: data missing": ("train <config> data.train=gone.xyz", ["gone.xyz"]),
    "evaluate: data empty": ("evaluate <model> <empty.xyz>", ["empty.xyz"]),
    "predict: data empty": ("predict <model> <empty.xyz> -o <o.xyz>", ["empty.xyz"]),
    "info: data empty": ("info <empty.xyz>", ["empty.xyz"]),
    "train: config empty": ("train <empty.yaml>", ["empty.yaml"]),
    "info: no structures": ("info <words.xyz>", ["words.xyz"]),
    # labels
    "evaluate: no labels": ("evaluate <model> <bare.xyz>", ["energy"]),
    "evaluate: no such key": (
        "evaluate <model> <water> --energy-key REF_energy",
        ["REF_energy", "energy", "forces"],
    ),
    "train: no such key": (
        "train <config> data.heads.energy.energy=dft_energy",
        ["dft_energy", "energy", "forces"],
    ),
    "evaluate: nan label": ("evaluate <model> <nan.xyz>", ["frame 3", "energy"]),
    "train: nan label": ("train <config> data.train=nan.xyz", ["frame 3", "energy"]),
    # elements
    "evaluate: element": ("evaluate <model> <helium.xyz>", ["He", "H, C, O"]),
    "predict: element": ("predict <model> <helium.xyz> -o <o.xyz>", ["He", "H, C, O"]),
    "md: element": ("md <model> <helium.xyz> -o <md>", ["He", "H, C, O"]),
    # configuration
    "train: unknown key": (
        "train <config> training.learning_rat=0.1",
        ["training.learning_rat", "learning_rate"],
    ),
    "train: cutoff 0": ("train <config> model.cutoff=0", ["cutoff", "0"]),
    "train: cutoff below 0": ("train <config> model.cutoff=-1.5", ["cutoff", "-1.5"]),
    "train: wrong type": ("train <config> training.epochs=many", ["epochs", "many"]),
    # models
    "info: other bytes": ("info <hello.pt>", ["hello.pt", "not a gnnforce model"]),
    "info: other format": ("info <other.pt>", ["other.pt", "not a gnnforce model"]),
    "evaluate: other format": ("evaluate <other.pt> <water>", ["other.pt"]),
    "predict: no model": ("predict <words.pt> <water> -o <o.xyz>", ["words.pt"]),
    "md: truncated model": ("md <cut.pt> <water> -o <md>", ["cut.pt"]),
    # heads
    "evaluate: head": ("evaluate <model> <water> --head Energy", ["'Energy'", "energy"]),
    "predict: head": (
        "predict <model> <water> -o <o.xyz> --head pbe",
        ["'pbe'", "energy"],
    ),
    "md: head": ("md <model> <water> -o <md> --head pbe", ["'pbe'", "energy"]),
    "predict: head number": ("predict <model> <water> -o <o.xyz> --head 1", ["energy"]),
    # stress
    "predict: stress of a molecule": (
        "predict <model> <water> -o <o.xyz> --stress",
        ["frame 0", "stress", "pbc"],
    ),
    "md: npt of a molecule": (
        "md <model> <water> -o <md> --ensemble npt",
        ["npt", "pbc"],
    ),
    # other values
    "md: ensemble": ("md <model> <water> -o <md> --ensemble langvin", ["langevin"]),
    "md: time step": ("md <model> <water> -o <md> --timestep 0", ["timestep", "0"]),
    "md: nothing to restart": ("md <model> <water> -o <md> --restart", ["restart"]),
    "md: no such frame": ("md <model> <water> -o <md> --index 99", ["water.xyz", "99"]),
    "predict: device": ("predict <model> <water> -o <o.xyz> --device tpu", ["tpu"]),
    "predict: dtype": ("predict <model> <water> -o <o.xyz> --dtype half", ["float64"]),
    "predict: threads": ("predict <model> <water> -o <o.xyz> --threads 0", ["threads"]),
    "predict: file type": ("predict <model> <water> -o <o.csv>", ["o.csv", "xyz"]),
    "predict: no folder": ("predict <model> <water> -o <no/o.xyz>", ["no folder"]),
    "predict: onto the input": ("predict <model> <water> -o <water>", ["is the input"]),
    "evaluate: folder is a file": ("evaluate <model> <water> -o <water>", ["water.xyz"]),
}


def words_of(line: str, file: Callable[[str], str]) -> list[str]:
    """Put files in the place of their names in angle brackets."""
    return [file(w[1:-1]) if w.startswith("<") else w for w in line.split()]


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line(run, file, tmp_path, case):
    line, expected = CASES[case]
    if "data.train=nan.xyz" in line:
        file("nan.xyz")  # beside the configuration
    result = run(*words_of(line, file))
    assert result.status == 2
    assert result.out == ""
    errors = [row for row in result.err.splitlines() if row.startswith("error: ")]
    assert len(errors) == 1, result.err
    assert result.err.count("\n") == 1, result.err
    for word in expected:
        assert word in errors[0]
    assert not (tmp_path / "o.xyz").exists()


@pytest.mark.parametrize("command", ["info <model>", "info <water>"])
def test_the_files_of_these_cases_are_fine_without_the_mistake(run, file, command):
    assert run(*words_of(command, file)).status == 0


def test_the_positions_of_nan_are_refused_too(run, committee, tmp_path):
    atoms = molecule("H2O")
    write(tmp_path / "in.xyz", atoms)
    text = (tmp_path / "in.xyz").read_text().splitlines()
    text[-1] = "H nan 0.0 0.0"
    (tmp_path / "in.xyz").write_text("\n".join(text) + "\n")
    result = run("predict", committee, tmp_path / "in.xyz", "-o", tmp_path / "o.xyz")
    assert result.status == 2
    assert "frame 0" in result.err


@pytest.mark.parametrize("case", ["info: missing", "predict: stress of a molecule"])
def test_in_a_process_of_its_own(file, case):
    line, expected = CASES[case]
    words = [sys.executable, "-m", "gnnforce.cli", *words_of(line, file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in expected)


def test_a_terminal_without_the_letter_is_no_error(committee):
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "gnnforce.cli", "info", str(committee)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env=os.environ | plain
    )
    assert "cutoff" in done.stdout  # in Å


def test_numbers_are_never_nan_in_json(run, tmp_path):
    atoms = molecule("H2O")
    atoms.arrays["odd"] = np.array([np.nan, 1.0, 2.0])
    write(tmp_path / "in.xyz", atoms)
    result = run("info", tmp_path / "in.xyz", "--json")
    assert "NaN" not in result.out
    assert result.json()["ranges"]["arrays:odd"] == {"not_finite": 1, "min": 1, "max": 2}
