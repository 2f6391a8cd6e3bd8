"""Steps of evaluate: which labels are taken, what is reported."""

import numpy as np
import pytest
from ase.build import molecule

from gnnforce.cli import evaluating
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError
from gnnforce.models.checkpoint import load
from gnnforce.training.evaluate import Compared


def compared(std, error):
    zero = np.zeros(len(error))
    spread = np.array(std, dtype=float)
    return Compared(zero, np.array(error), spread, zero.astype(int), zero.astype(int) + 3)


def trained_on(model, **facts):
    """Put into a model what training remembers of the labels of its head."""
    model.metadata["training"] = {"data": {"labels": {"energy": facts}}}


def test_undefined_statistics_say_why():
    report = evaluating.calibration_report(compared([0.0, 0.1], [1.0, 0.1]))
    assert list(report) == ["undefined"]
    assert "standard deviation of 0" in report["undefined"]


def test_calibration_is_that_of_the_errors():
    report = evaluating.calibration_report(compared([0.1, 0.2, 0.4], [0.2, -0.4, 0.8]))
    assert report["scale"] == pytest.approx(2.0)


def test_keys_of_the_training_come_first(committee):
    model = load(committee)
    assert evaluating.trained_keys(model, "energy") == {}
    trained_on(
        model,
        keys={"energy": "dft_energy", "forces": "dft_forces"},
        units={"energy": "kcal/mol", "length": "Ang"},
    )
    assert evaluating.trained_keys(model, "energy") == {
        "energy": "dft_energy",
        "forces": "dft_forces",
        "energy_unit": "kcal/mol",
        "length_unit": "Ang",
    }


def test_a_key_of_the_training_that_is_missing_is_named(committee, water):
    model = load(committee)
    trained_on(model, keys={"energy": "dft_energy"})
    with pytest.raises(DataError, match=r"dft_energy.*calculator: forces, energy"):
        evaluating.evaluate_file(model, water, ["energy"])
    named = evaluating.evaluate_file(model, water, ["energy"], keys={"energy": "energy"})
    assert named.report["keys"]["energy"]["energy"] == "energy"


def test_what_nan_and_large_forces_meant_in_the_training_holds(committee, water):
    model = load(committee)
    frames = read_frames(water)
    frames[0].calc.results["energy"] = float("nan")
    with pytest.raises(DataError, match="frame 0"):
        evaluating.read_labels(frames, model, ["energy"], {})
    table = evaluating.read_labels(frames, model, ["energy"], {}, allow_nan=True)
    assert table.counts["energy"]["energy"] == len(frames) - 1
    data = {"allow_nan": ["energy"], "forces_limit": float("inf")}
    model.metadata["training"] = {"config": {"data": data}}
    frames[0].calc.results["forces"] = np.full((len(frames[0]), 3), 1e4)
    table = evaluating.read_labels(frames, model, ["energy"], {})
    assert table.counts["energy"] == {
        "energy": len(frames) - 1,
        "forces": len(frames),
        "stress": 0,
    }


def test_own_predictions_are_no_labels(committee):
    atoms = molecule("H2O")
    atoms.info |= {"energy_energy": -1.0, "energy_energy_std": 0.1}
    model = load(committee)
    with pytest.raises(DataError, match="no frame has energy"):
        evaluating.read_labels([atoms], model, ["energy"], {})
