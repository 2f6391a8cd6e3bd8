"""What ``gnnforce info`` says about a file of structures."""

import numpy as np
import pytest
from ase.build import molecule
from ase.io import write

from .conftest import labeled


def test_data_counts_what_is_there(run, tmp_path):
    water, methane = molecule("H2O"), molecule("CH4")
    methane.info["charge"] = 1
    frames = [labeled(water, -10.0), labeled(methane, -20.0), water, water]
    frames[0].info["REF_energy"] = -11.5
    write(tmp_path / "in.xyz", frames)
    report = run("info", tmp_path / "in.xyz", "--json").json()
    assert report["frames"] == 4
    assert report["atoms"] == 14
    assert report["atoms_per_frame"] == [3, 5]
    assert report["elements"] == {"C": 1, "H": 10, "O": 3}
    assert report["keys"]["calculator"] == {"energy": 2, "forces": 2}
    assert report["keys"]["info"] == {"REF_energy": 1, "charge": 1}
    energy = report["ranges"]["calculator:energy"]
    assert (energy["min"], energy["max"]) == (-20.0, -10.0)
    forces = np.concatenate([f.calc.results["forces"] for f in frames[:2]])
    found = report["ranges"]["calculator:forces"]
    assert found["max"] == pytest.approx(forces.max(), abs=1e-7)
    assert report["duplicates"] == [[0, 2], [0, 3]]


def test_kinds_of_periodicity(run, tmp_path):
    frames = []
    for pbc, cell in (
        (False, None),
        (False, [9, 9, 9]),
        (True, [9, 9, 9]),
        ([True, True, False], [9, 9, 0]),
    ):
        atoms = molecule("CO")
        atoms.set_cell(cell)
        atoms.set_pbc(pbc)
        frames.append(atoms)
    write(tmp_path / "in.traj", frames)
    assert run("info", tmp_path / "in.traj", "--json").json()["cells"] == {
        "not periodic without a cell": 1,
        "not periodic with a cell": 1,
        "periodic in xyz with a cell": 1,
        "periodic in xy with a flat cell": 1,
    }


def test_data_for_people_names_the_keys(run, water):
    text = run("info", water).out
    row = next(line.split() for line in text.splitlines() if line.startswith("energy "))
    assert row[:3] == ["energy", "calculator", "8"]
    assert float(row[3]) == pytest.approx(-2069.0)
    assert "repeated frames  none" in text
