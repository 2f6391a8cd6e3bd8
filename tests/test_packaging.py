"""What is shipped, what importing costs, and what it leaves alone."""

import json
import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gnnforce"


def python(code: str, *, path: Path | None = None, cwd: Path | None = None) -> str:
    """Run code in a fresh interpreter and return what it printed; stderr must stay empty."""
    prefix = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    done = subprocess.run(
        [sys.executable, "-c", prefix + code],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "-w", str(folder)]
    done = subprocess.run(
        [*command, str(ROOT)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_the_whole_package_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if not any(part.startswith(".") for part in path.relative_to(PACKAGE).parts)
    }
    assert "gnnforce/py.typed" in expected
    packed = {name for name in inside if ".dist-info/" not in name}
    assert packed == expected
    records = {Path(name).name for name in inside - packed}
    assert {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"} == records


@pytest.mark.slow
def test_wheel_metadata_pins_nothing_and_needs_no_tools(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    requirements = metadata.get_all("Requires-Dist") or []
    always = {
        re.split(r"[<>=!~ ;\[]", one)[0] for one in requirements if "extra" not in one
    }
    assert not [one for one in requirements if "==" in one.split(";")[0]]
    assert {"torch", "torch-geometric", "ase", "numpy"} <= always
    assert not always & {
        "pytest",
        "hypothesis",
        "ruff",
        "mypy",
        "nbmake",
        "torch-scatter",
    }
    assert set(metadata.get_all("Provides-Extra") or []) == {
        "scatter",
        "cuda",
        "multitask",
        "dev",
    }
    assert metadata["Requires-Python"] == ">=3.11"


@pytest.mark.slow
def test_wheel_works_away_from_the_source(wheel: Path, tmp_path: Path):
    """Unpacked somewhere else, it is that copy which is imported, in every module."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = """
import importlib, pkgutil, warnings
warnings.filterwarnings("error", module="gnnforce")
import gnnforce
for module in pkgutil.walk_packages(gnnforce.__path__, "gnnforce."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(gnnforce.__file__, gnnforce.__version__, gnnforce.Calculator.__name__)
"""
    printed = python(code, path=tmp_path / "site", cwd=tmp_path).split()
    assert Path(printed[0]).is_relative_to(tmp_path / "site")
    assert printed[2] == "Calculator"


def test_command_prints_versions():
    done = subprocess.run(
        [sys.executable, "-m", "gnnforce.cli", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("gnnforce", "torch", "torch-geometric", "ase"):
        assert re.search(rf"{name}\S* +\d+\.\d", done.stdout, re.IGNORECASE), name


def test_import_is_quick_and_silent():
    """Beyond torch and torch_geometric, less than a second; the best of three counts."""
    code = """
import time, torch, torch_geometric.data, torch_geometric.nn
start = time.perf_counter()
import gnnforce
print(time.perf_counter() - start)
"""
    seconds = []
    for _ in range(3):
        seconds.append(
            float(python("import warnings; warnings.simplefilter('ignore')" + code))
        )
        if seconds[-1] < 1.0:
            break
    assert min(seconds) < 1.0


def test_import_prints_nothing():
    quiet = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
    assert python(quiet + "import gnnforce; gnnforce.Calculator") == ""


def test_importing_models_needs_neither_ase_calculators_nor_lightning():
    code = """
import sys
import warnings; warnings.simplefilter("ignore")
import gnnforce
heavy = ["lightning", "pytorch_lightning", "matplotlib", "typer", "tensorboard", "pydantic"]
print([name for name in heavy if name in sys.modules and name not in before])
"""
    before = "import torch_geometric.nn, sys; before = set(sys.modules)\n"
    assert (
        python("import warnings; warnings.simplefilter('ignore')\n" + before + code)
        == "[]\n"
    )


BROKEN = """
import sys
import warnings; warnings.simplefilter("ignore")
import torch
import gnnforce as gf
from ase.build import molecule

model = gf.ForceField(
    gf.PaiNN(elements=[1, 8], n_features=8, n_layers=1), [gf.Head("energy", members=2)]
)
graph = gf.AtomGraph.from_atoms(molecule("H2O"), cutoff=5.0)
out = model.predict(graph, ["energy", "forces"])
print(tuple(out["forces"].shape), bool(out["forces"].isfinite().all()))
"""


def test_broken_compiled_extras_do_not_matter(tmp_path: Path):
    """An extension built for another torch dies with OSError when it is imported."""
    for name in ("torch_scatter", "torch_cluster", "torch_sparse"):
        text = f"raise OSError('{name}: undefined symbol')\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert python(BROKEN, path=tmp_path) == "(2, 3, 3) True\n"


CONFIG = """
data: {train: four.xyz, valid: 0.5, heads: {energy: {energy: energy, forces: forces}}}
model: {backbone: schnet, n_features: 8, n_layers: 1, heads: {energy: {members: 2}}}
training: {epochs: 1, batch_size: 2}
output: run
"""


def write_four_frames(folder: Path) -> None:
    frames = []
    for stretch in (1.0, 1.1, 1.2, 1.3):
        atoms = molecule("H2O")
        atoms.positions *= stretch
        atoms.calc = SinglePointCalculator(
            atoms, energy=(atoms.positions**2).sum() / 2, forces=-atoms.positions
        )
        frames.append(atoms)
    write(folder / "four.xyz", frames, format="extxyz")
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")


HIDE = """
import importlib.metadata as metadata
from importlib.machinery import PathFinder
hidden = {"matplotlib", "tensorboard", "wandb"}
find_spec, from_name = PathFinder.find_spec, metadata.Distribution.from_name

def find_visible(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find_spec(name, path, target)

def visible(name):
    if name in hidden:
        raise metadata.PackageNotFoundError(name)
    return from_name(name)

PathFinder.find_spec, metadata.Distribution.from_name = find_visible, visible
"""


@pytest.mark.slow
def test_commands_without_optional_packages(tmp_path: Path):
    """No plots, loggers or compiled extras, no GPU, no home folder: training still works."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "sitecustomize.py").write_text(HIDE, encoding="utf-8")
    for name in ("torch_scatter", "torch_cluster", "torch_sparse"):
        (stubs / f"{name}.py").write_text("raise OSError('undefined symbol')\n")
    write_four_frames(tmp_path)
    environment = os.environ | {"HOME": "/proc/none", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(stubs)
    commands = [
        [name, "--help"] for name in ("train", "evaluate", "predict", "md", "info")
    ]
    commands += [["--help"], ["train", "config.yaml"], ["info", "run/model.pt"]]
    commands += [["predict", "run/model.pt", "four.xyz", "-o", "out.xyz"]]
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "gnnforce.cli", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)
    assert (tmp_path / "out.xyz").is_file()


STATE = """
import json, logging, os, random, sys, threading, warnings
import numpy as np
import torch
import ase.build, ase.md, torch_geometric.nn, vesin  # their side effects are not ours

def state():
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "torch": torch.get_rng_state().sum().item(),
        "numpy": repr(np.random.get_state()[1:]),
        "python": repr(random.getstate()),
        "environ": dict(os.environ),
        "filters": repr(warnings.filters),
        "root": repr(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "hooks": [repr(sys.excepthook), repr(sys.displayhook)],
        "cwd": os.getcwd(),
    }

def report(first):
    later = state()
    print(json.dumps([key for key in first if first[key] != later[key]]))
"""
SAVE = """
import sys
import warnings; warnings.simplefilter("ignore")
import gnnforce as gf
backbone = gf.PaiNN(elements=[1, 8], n_features=8, n_layers=1)
gf.ForceField(backbone, [gf.Head("energy", members=2)]).save(PATH)
"""
USE = """
from ase.build import molecule
gf.load(PATH, device="cpu", dtype="float64")
answers = []
calculators = {dtype: gf.Calculator(PATH, dtype=dtype) for dtype in ("float64", "float32")}
for dtype in ("float64", "float32", "float64", "float32"):
    atoms = molecule("H2O")
    atoms.calc = calculators[dtype]
    atoms.rattle(0.01 * len(answers))
    atoms.get_forces()
    atoms.positions = molecule("H2O").positions
    answers.append(atoms.get_forces())
assert (answers[0] == answers[2]).all() and (answers[1] == answers[3]).all()
try:
    atoms = molecule("CH4")
    atoms.calc = gf.Calculator(PATH)
    atoms.get_forces()
except Exception as error:
    assert type(error).__name__ == "UnknownElementError", error
else:
    raise AssertionError("carbon was accepted")
"""


@pytest.mark.parametrize("use", ["import", "evaluate"])
def test_no_side_effects(tmp_path: Path, use: str):
    """Importing, loading and evaluating move nothing, not even a random generator."""
    path = f"PATH = {str(tmp_path / 'model.pt')!r}\n"
    code = path + STATE + "before = state()\nimport gnnforce as gf\n"
    if use == "evaluate":
        python(path + SAVE)
        code += USE
    quiet = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"
    assert json.loads(python(quiet + code + "report(before)")) == []
