"""``gnnforce evaluate``: numbers, tables and pictures."""

import numpy as np
import pytest
from ase import Atoms
from ase.io import read, write

from gnnforce.calculators.ase import Calculator

from .conftest import labeled


def test_errors_equal_those_of_the_calculator(run, committee, water):
    head = run("evaluate", committee, water, "--json").json()["heads"]["energy"]
    calculator, energies, forces = Calculator(committee), [], []
    for atoms in read(water, ":"):
        results = calculator.results_by_head(atoms)["energy"]
        energies.append(results["energy"] - atoms.get_potential_energy())
        forces.append(results["forces"] - atoms.get_forces())
    rms = [float(np.sqrt(np.mean(np.square(x)))) for x in (energies, forces)]
    assert head["energy"]["rmse"] == pytest.approx(rms[0])
    assert head["energy_per_atom"]["rmse"] == pytest.approx(rms[0] / 3)
    assert head["forces"]["rmse"] == pytest.approx(rms[1])
    assert head["forces"]["mae"] == pytest.approx(np.mean(np.abs(forces)))
    assert head["forces"]["count"] == 8 * 9
    assert "stress" not in head


def test_uncertainty_of_a_committee(run, committee, water):
    head = run("evaluate", committee, water, "--json").json()["heads"]["energy"]
    calculator, std, error = Calculator(committee), [], []
    for atoms in read(water, ":"):
        results = calculator.results_by_head(atoms)["energy"]
        std.append(results["forces_std"])
        error.append(results["forces"] - atoms.get_forces())
    std, error = np.ravel(std), np.abs(np.ravel(error))
    found = head["uncertainty"]["forces"]
    assert found["pearson"] == pytest.approx(np.corrcoef(std, error)[0, 1])
    assert found["scale"] == pytest.approx(np.sqrt(np.mean((error / std) ** 2)))
    assert found["coverage_before"]["1_sigma"] == pytest.approx(np.mean(error <= std))


def test_a_single_model_has_no_uncertainty(run, three_heads, water, tmp_path):
    folder = tmp_path / "results"
    report = run("evaluate", three_heads, water, "-o", folder, "--json").json()
    assert "uncertainty" not in report["heads"]["pbe"]
    assert (folder / "parity.png").exists()
    assert not (folder / "uncertainty.png").exists()


@pytest.mark.parametrize(("word", "name"), [("hf", "hf"), ("2", "cc"), (None, "pbe")])
def test_c44_the_head_asked_for_answers(run, three_heads, tmp_path, word, name):
    write(tmp_path / "atom.xyz", [labeled(Atoms("H"), 0.0)])
    words = ["evaluate", three_heads, tmp_path / "atom.xyz", "--json"]
    heads = run(*words, *(["--head", word] if word else [])).json()["heads"]
    expected = {"pbe": 10.0, "hf": 20.0, "cc": 30.0}
    assert {key: entry["energy"]["mae"] for key, entry in heads.items()} == {
        name: expected[name]
    }


def test_files(run, committee, water, tmp_path):
    folder = tmp_path / "a" / "b"
    result = run("evaluate", committee, water, "-o", folder)
    assert result.status == 0
    names = {"metrics.json", "parity.png", "uncertainty.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert all(str(folder / name) in result.out for name in names)
    assert (folder / "parity.png").read_bytes().startswith(b"\x89PNG")


def test_without_plots_only_numbers(run, committee, water, tmp_path):
    run("evaluate", committee, water, "-o", tmp_path / "r", "--no-plots")
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["metrics.json"]


def test_the_table_for_people(run, committee, water):
    result = run("evaluate", committee, water)
    report = run("evaluate", committee, water, "--json").json()["heads"]["energy"]
    rows = [line.split() for line in result.out.splitlines()]
    forces = next(row for row in rows if row[:2] == ["energy", "forces"])
    assert float(forces[2]) == pytest.approx(1000 * report["forces"]["rmse"], rel=0.01)
    assert forces[4] == "meV/Å"
    assert "Spearman" in result.out
    assert "8 frames" in result.err  # which labels were read from where


def test_labels_under_other_keys_and_units(run, committee, water, tmp_path):
    frames = read(water, ":")
    for atoms in frames:
        atoms.info["pbe"] = atoms.get_potential_energy() * 23.060548
        atoms.arrays["pbe_gradient"] = atoms.get_forces() * 23.060548
        atoms.calc = None
    write(tmp_path / "other.xyz", frames)
    words = ["--energy-key", "pbe", "--forces-key", "pbe_gradient"]
    words += ["--energy-unit", "kcal/mol", "--json"]
    other = run("evaluate", committee, tmp_path / "other.xyz", *words).json()
    usual = run("evaluate", committee, water, "--json").json()
    for quantity in ("energy", "forces"):
        assert other["heads"]["energy"][quantity]["rmse"] == pytest.approx(
            usual["heads"]["energy"][quantity]["rmse"], rel=1e-5
        )
    assert other["keys"]["energy"]["energy"] == "pbe"


def test_predictions_are_not_taken_for_labels(run, committee, water, tmp_path):
    """A file that predict wrote holds 'energy_energy': no label of head 'energy'."""
    run("predict", committee, water, "-o", tmp_path / "out.xyz")
    again = run("evaluate", committee, tmp_path / "out.xyz", "--json").json()
    usual = run("evaluate", committee, water, "--json").json()
    assert again["heads"]["energy"]["energy"]["rmse"] == pytest.approx(
        usual["heads"]["energy"]["energy"]["rmse"]
    )
    assert again["keys"]["energy"]["energy"] == "energy"


def test_stress_is_compared_where_there_is_one(run, committee, crystal):
    head = run("evaluate", committee, crystal, "--json").json()["heads"]["energy"]
    atoms = read(crystal)
    expected = Calculator(committee).get_property("stress", atoms) - atoms.get_stress()
    assert head["stress"]["count"] == 9
    full = expected[[0, 1, 2, 3, 4, 5, 3, 4, 5]]
    assert head["stress"]["mae"] == pytest.approx(np.abs(full).mean())


def test_only_the_frames_asked_for(run, committee, water):
    words = ["evaluate", committee, water, "--index", ":3", "--json"]
    assert run(*words).json()["frames"] == 3
