"""Data to model, with cases C30, C34, C42 and C45 run as a user would."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from gnnforce.errors import ConfigError, DataError, UnknownElementError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.training.fit import train
from gnnforce.training.preparation import prepare, typical_force

from .helpers import h2, h2_frames, lengths, settings, write_frames


def labeled(atoms: Atoms, energy: float, forces=None) -> Atoms:
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


def prepared(tmp_path, frames, data=None, **sections):
    path = write_frames(tmp_path / "train.xyz", frames)
    lines: list[str] = []
    config = settings({"train": str(path)} | (data or {}), **sections)
    return prepare(config, lines.append), "\n".join(lines)


def run(tmp_path, frames, data=None, **sections):
    path = write_frames(tmp_path / "train.xyz", frames)
    top = {"output": str(tmp_path / "run")}
    config = settings({"train": str(path)} | (data or {}), top=top, **sections)
    return train(config, progress=False)


# C34: tiny and degenerate sets


def lone_atoms():
    return [labeled(h2()[:1], -13.6, np.zeros((1, 3))) for _ in range(4)]


DEGENERATE = {
    "3 frames, batch 10": (lambda: h2_frames([0.7, 0.8, 0.9]), {"valid": None}, 10),
    "1 frame": (lambda: h2_frames([0.8]), {"valid": None}, 2),
    "4 lone atoms": (lone_atoms, {"valid": None}, 2),
    "4 identical": (lambda: h2_frames([0.8] * 4), {"valid": None}, 2),
    "0.1 of 3 frames": (lambda: h2_frames([0.7, 0.8, 0.9]), {"valid": 0.1}, 2),
    "forces all zero": (
        lambda: [labeled(h2(x), -x, np.zeros((2, 3))) for x in (0.7, 0.8, 0.9)],
        {"valid": None},
        2,
    ),
    "no forces": (lambda: [labeled(h2(x), -x) for x in (0.7, 0.8)], {"valid": None}, 2),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_sets_train_with_a_finite_loss(name, tmp_path):
    """Case C34."""
    make, data, size = DEGENERATE[name]
    scaleless = name in ("4 lone atoms", "forces all zero", "no forces")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = run(tmp_path, make(), data, training={"epochs": 2, "batch_size": size})
    texts = [str(warning.message) for warning in seen]
    assert len(texts) == scaleless, texts
    assert all("scale is 1" in text for text in texts)
    assert result.metrics["steps"] >= 2
    assert all(torch.isfinite(x).all() for x in result.model.state_dict().values())
    assert result.metrics["validation"] is None
    log = (result.folder / "train.log").read_text()
    assert "no validation" in log
    out = result.model.predict(AtomGraph.from_atoms(h2(), 3.0))
    assert all(torch.isfinite(x).all() for x in out.values())


def test_identical_frames_cannot_be_split(tmp_path):
    """Case C34: the message names the number of frames and the option."""
    with pytest.raises(DataError, match=r"4 frames.*valid"):
        run(tmp_path, h2_frames([0.8] * 4), {"valid": 0.25})


# C42: absurd forces


def with_outlier(size):
    frames = h2_frames(lengths(10))
    frames[4].calc.results["forces"] = np.array([[0, 0, size], [0, 0, -size]])
    return frames


@pytest.mark.parametrize("size", [1e4, 1e30, math.inf])
def test_absurd_forces_stop_a_run_with_advice(size, tmp_path):
    """Case C42, default options: 1000 eV/Angstrom is beyond any physics."""
    with pytest.raises(DataError, match=r"frame 4.*force"):
        run(tmp_path, with_outlier(size))


@pytest.mark.filterwarnings("ignore:head 'energy'. forces and:UserWarning")
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_frames_with_absurd_forces_are_dropped_when_asked(size, tmp_path):
    """Case C42."""
    data = {"on_bad": "drop", "valid": None}
    found, log = prepared(tmp_path, with_outlier(size), data)
    assert len(found.train) == 9
    assert "dropped 1 frames (frame 4" in log
    assert "largest force" in log


@pytest.mark.parametrize("size", [400.0, 1e4])
def test_an_outlier_that_is_let_through_does_not_wreck_the_rest(size, tmp_path):
    """Case C42: 20 steps; the error of the nine others is not twice that without."""
    errors = []
    nine = [frame for n, frame in enumerate(with_outlier(1.0)) if n != 4]
    steps = {"epochs": 4, "batch_size": 2, "learning_rate": 0.01}
    data = {"valid": None, "forces_limit": math.inf}
    for frames in (nine, with_outlier(size)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # forces contradict energies, as they do
            result = run(tmp_path, frames, data, training=steps)
        state = result.model.state_dict()
        assert all(torch.isfinite(x).all() for x in state.values())
        forces = [
            result.model.predict(AtomGraph.from_atoms(a, 3.0))["forces"].mean(0).numpy()
            - a.calc.results["forces"]
            for a in nine
        ]
        errors.append(np.abs(forces).mean())
    assert result.metrics["steps"] == 20
    assert errors[1] < 2 * errors[0]


def test_scale_ignores_outliers(tmp_path):
    data = {"valid": None, "forces_limit": math.inf}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spoiled, log = prepared(tmp_path, with_outlier(1e4), data)
    clean, _ = prepared(tmp_path, h2_frames(lengths(10)), data)
    scales = [p.model.scales()["energy"][1] for p in (spoiled, clean)]
    assert 0.3 < scales[0] / scales[1] < 3
    assert "far above the others" in log


def test_scale_is_the_root_mean_square_force(tmp_path):
    frames = h2_frames(lengths(10))
    found, _ = prepared(tmp_path, frames, {"valid": None})
    forces = np.stack([frame.calc.results["forces"] for frame in frames])
    rms = np.sqrt((forces**2).mean())
    assert found.model.scales()["energy"] == {1: pytest.approx(rms)}
    # applied once: the model answers its raw output times the scale
    graph = AtomGraph.from_atoms(frames[0], 3.0)
    before = found.model.predict(graph)["forces"]
    found.model.set_scales({"energy": 2 * rms})
    assert torch.allclose(found.model.predict(graph)["forces"], 2 * before)


def test_typical_force_is_that_of_a_normal_distribution(tmp_path):
    rng = np.random.default_rng(0)
    frames = [labeled(h2(x), 0.0, rng.normal(size=(2, 3)) * 3.0) for x in lengths(300)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = prepared(tmp_path, frames, {"valid": None})
    assert typical_force(found.train.table, "energy") == pytest.approx(3.0, rel=0.06)


# C30: references


@pytest.mark.parametrize(
    "given",
    [
        {"H": -13.6, "O": -432},
        {8: -432, 1: -13.6},
        {"1": -13.6},
        {"energy": {"H": -13.6}, "other": {"H": -1.0}},
    ],
)
def test_given_references(given, tmp_path):
    """Case C30: extra entries, numbers and symbols in any order."""
    data = {"references": given, "valid": None}
    found, _ = prepared(tmp_path, h2_frames(lengths(4)), data)
    assert found.model.references() == {"energy": {1: -13.6}}
    assert found.facts["references"]["origin"] == {"energy": "given"}
    energy = found.model.predict(AtomGraph.from_atoms(h2()[:1], 3.0))["energy"]
    assert (energy == -13.6).all()


def test_a_missing_reference_is_named(tmp_path):
    """Case C30."""
    water = Atoms("OH2", [[0, 0, 0], [0, 0.76, 0.59], [0, -0.76, 0.59]])
    frames = [labeled(water, -460.0, np.zeros((3, 3)))]
    with pytest.raises(ConfigError, match=r"\bO\b"):
        prepared(tmp_path, frames, {"references": {"H": -13.6}, "valid": None})


def test_isolated_atoms_give_references(tmp_path):
    isolated = write_frames(tmp_path / "isolated.xyz", lone_atoms()[:1])
    data = {"isolated_atoms": str(isolated), "valid": None}
    found, log = prepared(tmp_path, h2_frames(lengths(4)), data)
    assert found.model.references() == {"energy": {1: -13.6}}
    assert "isolated" in log


def test_a_fit_with_many_solutions_is_remembered(tmp_path):
    water = Atoms("OH2", [[0, 0, 0], [0, 0.76, 0.59], [0, -0.76, 0.59]])
    frames = [labeled(water, -460.0, np.ones((3, 3)))]
    found, log = prepared(tmp_path, frames, {"valid": None})
    assert found.facts["references"]["rank_deficient"] == ["energy"]
    assert "energy" in log


# C45: heads with few or no labels

LEVELS = {"a": {"H": -10.0}, "b": {"H": -20.0}, "c": {"H": -30.0}}
HEADS = {"a": {"members": 2, "hidden": [4]}, "b": {"members": 2, "hidden": [4]}}
HEADS["c"] = {"members": 1, "hidden": [4]}


def two_levels(tmp_path, valid="a"):
    """Four frames labeled a, one c; validation has one head only."""
    frames = [*h2_frames(lengths(4), "a"), *h2_frames([0.95], "c")]
    held_out = write_frames(tmp_path / "valid.xyz", h2_frames([0.77, 0.81], valid))
    keys = {
        name: {"energy": f"{name}_energy", "forces": f"{name}_forces"} for name in "ac"
    }
    return frames, {"heads": keys, "references": LEVELS, "valid": str(held_out)}


def test_heads_with_few_and_no_labels(tmp_path):
    """Case C45."""
    frames, data = two_levels(tmp_path)
    start, log = prepared(tmp_path, frames, data, model={"heads": HEADS})
    assert "a_energy" in log
    assert "head 'b' has no labels" in log
    assert start.facts["labels"]["a"]["counts"]["energy"] == 4
    assert start.facts["labels"]["c"]["counts"]["energy"] == 1
    options = {"epochs": 3, "learning_rate": 0.01, "weight_decay": 0.0}
    result = run(tmp_path, frames, data, model={"heads": HEADS}, training=options)
    model = result.model
    lone = model.predict(AtomGraph.from_atoms(h2()[:1], 3.0))
    means = [lone.head(name).mean("energy").item() for name in "abc"]
    assert means == pytest.approx([-10, -20, -30], abs=1e-12)
    assert model.metadata["untrained_heads"] == ["b"]
    validation = result.metrics["validation"]
    assert validation["a"]["forces"]["rmse"] > 0
    for name in "bc":
        assert validation[name]["forces"]["rmse"] is None
    text = (result.folder / "train.log").read_text()
    assert "c: no validation data" in text
    # b's readout is what it was at the start, a's and c's are not
    before = start.model.readouts.perceptrons[0].state_dict()
    after = model.readouts.perceptrons[0].state_dict()
    for name, value in before.items():
        assert torch.equal(value[2:4], after[name][2:4]), name
    for member in (0, 1, 4):
        moved = [
            not torch.equal(x[member], after[name][member]) for name, x in before.items()
        ]
        assert any(moved)


def test_a_head_that_no_data_names_needs_no_place_in_data_heads(tmp_path):
    frames, data = two_levels(tmp_path)
    with pytest.raises(ConfigError, match=r"'c', which model\.heads has not"):
        prepared(tmp_path, frames, data, model={"heads": {"a": {}, "b": {}}})


# labels, weights and elements


def test_a_weight_for_labels_that_are_not_there_is_an_error(tmp_path):
    """Case C43."""
    with pytest.raises(DataError, match="stress"):
        prepared(tmp_path, h2_frames(lengths(4)), training={"weights": {"stress": 1.0}})


def test_a_label_that_no_frame_has_lists_those_there_are(tmp_path):
    heads = {"energy": {"energy": "dft_energy"}}
    with pytest.raises(DataError, match=r"train\.xyz.*dft_energy.*forces, energy"):
        prepared(tmp_path, h2_frames(lengths(4)), {"heads": heads})


def test_energies_alone_are_trained_without_forces(tmp_path):
    frames = [labeled(h2(x), -x) for x in lengths(4)]
    with pytest.warns(UserWarning, match="no forces"):
        found, _ = prepared(tmp_path, frames, {"valid": None})
    assert found.quantities == ("energy",)
    assert found.config.training.weights.forces == 0


def test_an_unknown_element_in_validation_or_test_is_refused(tmp_path):
    """Case C14, before the first step."""
    other = Atoms("HS", [[0, 0, 0], [0, 0, 1.4]])
    path = write_frames(tmp_path / "s.xyz", [labeled(other, -1.0, np.zeros((2, 3)))])
    for key in ("valid", "test"):
        data = {key: str(path)}
        with pytest.raises(UnknownElementError, match=r"s\.xyz: frame 0 holds S"):
            prepared(tmp_path, h2_frames(lengths(4)), {"valid": None} | data)
    found, _ = prepared(
        tmp_path,
        h2_frames(lengths(4)),
        {"valid": str(path), "references": {"H": -1, "S": -2}},
        model={"elements": ["S"]},
    )
    assert found.model.elements == [1, 16]


def test_frames_of_the_test_must_not_be_learned(tmp_path):
    frames = h2_frames(lengths(4))
    path = write_frames(tmp_path / "t.xyz", frames[1:2])
    data = {"valid": None, "test": str(path)}
    with pytest.raises(DataError, match=r"1 test frames.*frame 0 of .*frame 1 of"):
        prepared(tmp_path, frames, data)
    found, _ = prepared(tmp_path, frames, data | {"allow_duplicates": True})
    assert len(found.test) == 1


def test_the_split_is_a_function_of_the_seed(tmp_path):
    rows = []
    for seed in (0, 0, 1):
        found, _ = prepared(
            tmp_path, h2_frames(lengths(20)), {"valid": 0.25}, top={"seed": seed}
        )
        rows.append([int(g["frame_id"]) for g in (found.valid[i] for i in range(5))])
    assert rows[0] == rows[1] != rows[2]


def test_weights_of_frames_reach_the_loss(tmp_path):
    """Case C36: the column is read and used."""
    frames = h2_frames([0.74, 0.9])
    for weight, frame in zip((1.0, 0.0), frames, strict=True):
        frame.info["config_weight"] = weight
    found, _ = prepared(tmp_path, frames, {"valid": None})
    weights = [float(found.train[row]["frame_weight"]) for row in range(2)]
    assert weights == [1.0, 0.0]
    frames[1].info["config_weight"] = -1.0
    with pytest.raises(UserError, match="negative"):
        prepared(tmp_path, frames, {"valid": None})


def test_a_folder_is_not_made_for_a_run_that_cannot_start(tmp_path):
    with pytest.raises(UserError):
        run(tmp_path, h2_frames(lengths(4)), {"heads": {"energy": {"energy": "E"}}})
    assert not Path(tmp_path / "run" / "model.pt").exists()


def test_early_stopping_needs_validation(tmp_path):
    with pytest.raises(ConfigError, match=r"early_stopping.*data\.valid"):
        prepared(
            tmp_path,
            h2_frames(lengths(3)),
            {"valid": 0.1},
            training={"early_stopping": 3},
        )


def test_charges_are_counted(tmp_path):
    """Case C21, the training side."""
    frames = h2_frames(lengths(3))
    frames[1].info["charge"] = 1
    _, log = prepared(tmp_path, frames, {"valid": None})
    assert "total charge given in 1 of 3 frames" in log
