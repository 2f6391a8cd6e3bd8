"""A small model, small data, and the command line run inside the process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from gnnforce.backbones.schnet import SchNet
from gnnforce.cli.main import main
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

ISOLATED = {"energy": {1: -13.6, 6: -1029.0, 8: -2041.0}}


@dataclass(frozen=True)
class Outcome:
    """What one command line gave."""

    status: int
    out: str
    err: str

    def json(self) -> dict:
        """Return the JSON object; fails if anything else is on standard output."""
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Return a function that runs ``gnnforce`` in this process."""

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        status = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


def make_model(*heads: Head, elements: tuple[int, ...] = (1, 6, 8)) -> ForceField:
    """Return a small model with random weights that do not depend on other tests."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = SchNet(
            list(elements), n_features=8, n_layers=1, cutoff=4.0, n_radial=6
        )
        return ForceField(backbone, list(heads)).to(torch.float64)


def labeled(atoms: Atoms, energy: float, **more: object) -> Atoms:
    """Return a copy with an energy and forces as ASE keeps them."""
    copy = atoms.copy()
    rng = np.random.default_rng(len(atoms))
    forces = rng.normal(size=(len(atoms), 3))
    copy.calc = SinglePointCalculator(copy, energy=energy, forces=forces, **more)
    return copy


@pytest.fixture
def committee(tmp_path: Path) -> Path:
    """Return the file of a committee of three with one head, ``energy``."""
    model = make_model(Head("energy", members=3, hidden=(8,)))
    model.set_references(ISOLATED)
    model.save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


@pytest.fixture
def three_heads(tmp_path: Path) -> Path:
    """Return the file of a model with heads of very different references (case C44)."""
    model = make_model(*(Head(name, hidden=(8,)) for name in ("pbe", "hf", "cc")))
    energies = {"pbe": -10.0, "hf": -20.0, "cc": -30.0}
    model.set_references(
        {name: dict.fromkeys((1, 6, 8), e0) for name, e0 in energies.items()}
    )
    model.save(tmp_path / "heads.pt")
    return tmp_path / "heads.pt"


@pytest.fixture
def water(tmp_path: Path) -> Path:
    """Return a file with eight labeled frames of water, no two the same."""
    rng = np.random.default_rng(1)
    frames = []
    for number in range(8):
        atoms = molecule("H2O")
        atoms.positions += 0.05 * rng.normal(size=(3, 3))
        atoms.info["origin"] = f"frame {number}"
        atoms.arrays["weight"] = rng.normal(size=3)
        frames.append(labeled(atoms, energy=-2069.0 + 0.1 * number))
    write(tmp_path / "water.xyz", frames)
    return tmp_path / "water.xyz"


@pytest.fixture
def crystal(tmp_path: Path) -> Path:
    """Return a file with one periodic frame."""
    atoms = Atoms("CO", [[0, 0, 0], [1.1, 0.2, 0.3]], cell=[4, 4.2, 4.4], pbc=True)
    write(tmp_path / "crystal.xyz", labeled(atoms, -3070.0, stress=np.arange(6) * 0.01))
    return tmp_path / "crystal.xyz"
