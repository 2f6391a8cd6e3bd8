"""Steps of predict that the command line does not reach by itself."""

import numpy as np
import pytest
from ase.build import molecule
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read

from gnnforce.cli import predicting
from gnnforce.errors import DataError, GeometryError, UserError
from gnnforce.models.checkpoint import load
from gnnforce.readouts.head import Head

from .conftest import labeled, make_model


def test_keys_of_a_committee_and_of_a_single_model(committee, three_heads):
    wanted = ["energy", "forces"]
    assert predicting.written_keys(load(committee), ["energy"], wanted) == {
        "info": ["energy_energy", "energy_energy_std"],
        "arrays": ["energy_forces", "energy_forces_std"],
    }
    keys = predicting.written_keys(load(three_heads), ["hf", "cc"], ["energy", "stress"])
    assert keys["info"] == ["hf_energy", "hf_stress", "cc_energy", "cc_stress"]


def test_a_label_in_two_places_is_written_once(tmp_path):
    atoms = labeled(molecule("H2O"), energy=-5.0)
    atoms.info["energy"] = -5.0
    atoms.arrays["forces"] = atoms.calc.results["forces"].copy()
    predicting.write_frames([atoms], tmp_path / "out.xyz")
    header = (tmp_path / "out.xyz").read_text().splitlines()[1]
    assert header.count("energy=") == 1
    assert header.count(":forces:") + header.count("=forces:") == 1
    assert read(tmp_path / "out.xyz").get_potential_energy() == -5.0


def test_a_label_with_two_values_is_refused_and_nothing_left(tmp_path):
    atoms = labeled(molecule("H2O"), energy=-5.0)
    atoms.info["energy"] = -6.0
    with pytest.raises(DataError, match="frame 0 holds two different values of 'energy'"):
        predicting.write_frames([atoms], tmp_path / "out.xyz")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_structure_names_its_frame(committee):
    frames = [molecule("H2O") for _ in range(3)]
    frames[2].positions[1] = frames[2].positions[0]
    steps = predicting.predict_frames(
        load(committee), frames, ["energy"], ["energy"], batch_size=2
    )
    assert next(steps)[0] == 2
    with pytest.raises(GeometryError, match="frame 2: atoms 0 and 1"):
        next(steps)


def test_predictions_that_are_not_finite_are_refused(committee):
    model = load(committee)
    model.set_scales({"energy": 1e308})
    steps = predicting.predict_frames(
        model, [molecule("H2O")], ["energy"], ["energy"], batch_size=1
    )
    with pytest.raises(DataError, match="frame 0: energy_energy_std is not finite"):
        next(steps)


def test_names_that_would_break_the_file_are_refused():
    model = make_model(Head("my head", hidden=(8,)))
    with pytest.raises(UserError, match="plain name"):
        predicting.check_frames(
            [molecule("H2O")], model, ["my head"], stress=False, overwrite=False
        )


def test_results_of_a_calculator_count_as_taken(committee):
    atoms = molecule("H2O")
    atoms.calc = SinglePointCalculator(atoms)
    atoms.calc.results = {"energy_energy": 1.0}
    with pytest.raises(DataError, match="frame 0 has energy_energy already"):
        predicting.check_frames(
            [atoms], load(committee), ["energy"], stress=False, overwrite=False
        )


def test_written_files_are_readable_by_others(tmp_path):
    predicting.write_frames([molecule("CO")], tmp_path / "out.xyz")
    mode = (tmp_path / "out.xyz").stat().st_mode & 0o777
    (tmp_path / "plain").touch()
    assert mode == (tmp_path / "plain").stat().st_mode & 0o777
    np.testing.assert_allclose(
        read(tmp_path / "out.xyz").positions, molecule("CO").positions, atol=1e-8
    )
