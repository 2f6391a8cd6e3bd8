"""Predictions stand beside what the file held, under documented keys, per head."""

import warnings

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.constraints import FixAtoms
from ase.io import read, write

from gnnforce.calculators.ase import Calculator
from gnnforce.models.checkpoint import load
from gnnforce.readouts.head import Head

from .conftest import ISOLATED, labeled, make_model


def test_everything_of_the_input_stays(run, committee, water, tmp_path):
    out = tmp_path / "out.xyz"
    assert run("predict", committee, water, "-o", out).status == 0
    before, after = read(water, ":"), read(out, ":")
    assert len(after) == len(before) == 8
    for old, new in zip(before, after, strict=True):
        assert new.symbols.get_chemical_formula() == old.symbols.get_chemical_formula()
        np.testing.assert_allclose(new.positions, old.positions, atol=1e-8)
        np.testing.assert_array_equal(new.arrays["weight"], old.arrays["weight"])
        assert new.info["origin"] == old.info["origin"]
        assert new.get_potential_energy() == old.get_potential_energy()
        np.testing.assert_array_equal(new.get_forces(), old.get_forces())
        assert set(new.info) - set(old.info) == {"energy_energy", "energy_energy_std"}
        added = set(new.arrays) - set(old.arrays)
        assert added == {"energy_forces", "energy_forces_std"}


def test_nothing_is_written_twice(run, committee, water, tmp_path):
    out = tmp_path / "out.xyz"
    run("predict", committee, water, "-o", out)
    header = out.read_text().splitlines()[1]
    keys = [word.split("=")[0] for word in header.split() if "=" in word]
    assert len(keys) == len(set(keys))
    columns = header.split("Properties=")[1].split()[0].split(":")[::3]
    assert sorted(columns) == sorted(
        ["species", "pos", "weight", "forces", "energy_forces", "energy_forces_std"]
    )


def test_values_are_those_of_the_calculator(run, committee, water, tmp_path):
    out = tmp_path / "out.xyz"
    run("predict", committee, water, "-o", out, "--batch-size", 3)
    calculator = Calculator(committee)
    for old, new in zip(read(water, ":"), read(out, ":"), strict=True):
        results = calculator.results_by_head(old)["energy"]
        assert new.info["energy_energy"] == pytest.approx(results["energy"], abs=1e-8)
        assert new.info["energy_energy_std"] == pytest.approx(results["energy_std"])
        assert results["energy_std"] > 0
        for key in ("forces", "forces_std"):
            np.testing.assert_allclose(
                new.arrays[f"energy_{key}"], results[key], atol=2e-8
            )


def test_frames_of_different_sizes_are_not_mixed_up(run, committee, tmp_path):
    frames = [molecule("CH4"), Atoms("H"), molecule("H2O"), molecule("CO")]
    write(tmp_path / "in.xyz", frames)
    run("predict", committee, tmp_path / "in.xyz", "-o", tmp_path / "out.xyz")
    calculator = Calculator(committee)
    for old, new in zip(frames, read(tmp_path / "out.xyz", ":"), strict=True):
        assert len(new) == len(old)
        forces = calculator.results_by_head(old)["energy"]["forces"]
        np.testing.assert_allclose(new.arrays["energy_forces"], forces, atol=1e-6)


def test_lone_atom_has_its_reference_energy(run, committee, tmp_path):
    write(tmp_path / "in.xyz", Atoms("O"))
    run("predict", committee, tmp_path / "in.xyz", "-o", tmp_path / "out.xyz")
    atoms = read(tmp_path / "out.xyz")
    assert atoms.info["energy_energy"] == ISOLATED["energy"][8]
    assert np.all(atoms.arrays["energy_forces"] == 0)


def test_c44_heads_are_answered_by_name_and_number(run, three_heads, tmp_path):
    write(tmp_path / "in.xyz", Atoms("H"))
    expected = {"pbe": -10.0, "hf": -20.0, "cc": -30.0}
    for number, (name, energy) in enumerate(expected.items()):
        for word in (name, str(number)):
            out = tmp_path / f"{word}.xyz"
            words = [
                "predict",
                three_heads,
                tmp_path / "in.xyz",
                "-o",
                out,
                "--head",
                word,
            ]
            assert run(*words, "--json").json()["heads"] == [name]
            atoms = read(out)
            assert atoms.info[f"{name}_energy"] == energy
            assert set(atoms.info) == {f"{name}_energy"}  # one member has no spread


def test_c44_the_first_head_answers_when_none_is_named(run, three_heads, tmp_path):
    write(tmp_path / "in.xyz", Atoms("H"))
    run("predict", three_heads, tmp_path / "in.xyz", "-o", tmp_path / "out.xyz")
    assert set(read(tmp_path / "out.xyz").info) == {"pbe_energy"}
    assert Calculator(three_heads).head == "pbe"


def test_all_heads_side_by_side(run, three_heads, tmp_path):
    write(tmp_path / "in.xyz", molecule("H2O"))
    words = ["predict", three_heads, tmp_path / "in.xyz", "-o", tmp_path / "out.xyz"]
    assert run(*words, "--head", "all").status == 0
    atoms = read(tmp_path / "out.xyz")
    expected = Calculator(load(three_heads)).results_by_head(molecule("H2O"))
    for name in ("pbe", "hf", "cc"):
        assert atoms.info[f"{name}_energy"] == pytest.approx(expected[name]["energy"])


def test_stress_of_a_crystal_beside_its_label(run, committee, crystal, tmp_path):
    out = tmp_path / "out.xyz"
    words = ["predict", committee, crystal, "-o", out, "--stress"]
    assert run(*words).status == 0
    old, new = read(crystal), read(out)
    np.testing.assert_allclose(new.get_stress(), old.get_stress(), atol=1e-12)
    old.calc = Calculator(committee)
    np.testing.assert_allclose(
        new.info["energy_stress"], old.get_stress(voigt=False), atol=1e-10
    )
    assert new.info["energy_stress_std"].shape == (3, 3)


def test_constraints_touch_neither_labels_nor_predictions(run, committee, tmp_path):
    atoms = labeled(molecule("H2O"), energy=-2069.0)
    forces = atoms.get_forces()
    atoms.set_constraint(FixAtoms([0]))
    write(tmp_path / "in.traj", atoms)
    run("predict", committee, tmp_path / "in.traj", "-o", tmp_path / "out.xyz")
    new = read(tmp_path / "out.xyz")
    np.testing.assert_allclose(new.calc.results["forces"], forces, atol=1e-8)
    assert np.abs(new.arrays["energy_forces"][0]).max() > 1e-6
    assert len(new.constraints) == 1


def test_predictions_are_replaced_only_when_asked(run, committee, water, tmp_path):
    first, second = tmp_path / "first.xyz", tmp_path / "second.xyz"
    run("predict", committee, water, "-o", first)
    refused = run("predict", committee, first, "-o", second)
    assert refused.status == 2
    assert "frame 0 has energy_energy" in refused.err
    assert not second.exists()
    assert run("predict", committee, first, "-o", second, "--overwrite").status == 0
    assert second.read_text() == first.read_text()


def test_a_head_may_not_shadow_a_name_of_ase(run, tmp_path, water):
    make_model(Head("free", hidden=(8,))).save(tmp_path / "free.pt")
    result = run("predict", tmp_path / "free.pt", water, "-o", tmp_path / "out.xyz")
    assert result.status == 2
    assert "'free_energy'" in result.err


def test_only_the_frames_asked_for(run, committee, water, tmp_path):
    out = tmp_path / "out.xyz"
    words = ["predict", committee, water, "-o", out, "--index", "::3", "--json"]
    assert run(*words).json()["frames"] == 3
    assert [a.info["origin"] for a in read(out, ":")] == ["frame 0", "frame 3", "frame 6"]


def test_charge_gives_one_warning(run, committee, tmp_path):
    frames = [molecule("H2O") for _ in range(3)]
    for atoms in frames[1:]:
        atoms.info["charge"] = -1
    write(tmp_path / "in.xyz", frames)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run(
            "predict", committee, tmp_path / "in.xyz", "-o", tmp_path / "out.xyz"
        )
    assert result.err.startswith("warning: 2 frames (the first is 1) have a charge")
    assert result.err.count("\n") == 1
    assert len(read(tmp_path / "out.xyz", ":")) == 3
