from pathlib import Path

import pytest

from gnnforce.errors import ConfigError
from gnnforce.training.config import load_config, make_config, save_config

MINIMAL = {"data": {"train": "frames.xyz"}}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_the_documented_example(tmp_path):
    text = """
data:
  train: acac/train.xyz
  valid: 0.1
  test: null
  isolated_atoms: null
  heads: {energy: {energy: energy, forces: forces}}
  references: auto
  forces_limit: null
  group_key: null
model: {backbone: painn, n_features: 64, n_layers: 3, cutoff: 5.0, n_radial: 20,
        heads: {energy: {members: 8, kind: node_sum}}, repulsion: false}
training: {minutes: null, epochs: 100, batch_size: 8, learning_rate: 1e-3,
           warmup_steps: 100, weight_decay: 0.001, amsgrad: true, gradient_clip: 10,
           ema_decay: 0.99, weights: {energy: 1, forces: 10, stress: 1},
           weight_schedule: [{at: 0.75, energy: 100}], bootstrap: poisson,
           derivative_members: all, early_stopping: null, dtype: float32, workers: 0,
           threads: null, devices: 1}
output: results
seed: 3
"""
    config = load_config(write(tmp_path, text))
    assert config.training.learning_rate == 0.001  # YAML reads 1e-3 as text: case C43
    assert config.training.derivative_members == "all"
    assert config.data.train == str(tmp_path / "acac/train.xyz")
    assert config.output == str(tmp_path / "results")
    assert config.seed == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": {"learning_rat": 0.1}}, "unknown key training.learning_rat. Did you "
         "mean 'training.learning_rate'?"),
        ({"learning_rate": 0.1}, "unknown key learning_rate. Did you mean "
         "'training.learning_rate'?"),
        ({"training": {"stress_weight": 1}}, "unknown key training.stress_weight. Did you "
         "mean 'training.weights'?"),
        ({"modl": {}}, "unknown key modl. Did you mean 'model'?"),
        ({"training": {"minutes": 1, "epochs": 2}}, "training: minutes and epochs exclude "
         "each other; give one of them"),
        ({"training": {"epochs": "many"}}, "training.epochs should be an integer, not "
         "'many'"),
        ({"model": {"cutoff": -1.5}}, "model.cutoff should be greater than 0, not -1.5"),
        ({"seed": -1}, "seed should be greater than or equal to 0, not -1"),
        ({"seed": 2**63}, f"seed should be less than {2**63}, not {2**63}"),
        ({"data": None}, "data should be a dictionary, not None"),
        ({"data": {"valid": 0.1}}, "data.train is missing"),
        ({"training": {"weight_schedule": [{"at": 0.5, "forces": -1}]}},
         "training.weight_schedule.0.forces should be greater than or equal to 0, not -1"),
        ({"model": {"heads": {"energy": {"member": 2}}}}, "unknown key "
         "model.heads.energy.member. Did you mean 'model.heads.energy.members'?"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_the_key(change, words):
    """Case C43."""
    with pytest.raises(ConfigError) as caught:
        make_config(MINIMAL | change)
    assert str(caught.value) == words


def test_two_mistakes_are_both_named():
    with pytest.raises(ConfigError, match=r"epochs.*1 more: training\.batch_size"):
        make_config(MINIMAL | {"training": {"epochs": "x", "batch_size": "y"}})


def test_the_command_line_wins(tmp_path):
    """Case C43."""
    path = write(tmp_path, "data: {train: t.xyz}\ntraining: {epochs: 10}\nseed: 1\n")
    words = ["training.epochs=50", "seed=2", "model.heads.energy.members=3"]
    config = load_config(path, [*words, "data.test=other/test.xyz"])
    assert (config.training.epochs, config.seed) == (50, 2)
    assert config.model.heads["energy"].members == 3
    assert config.data.test == str(tmp_path / "other/test.xyz")


def test_time_can_replace_epochs(tmp_path):
    path = write(tmp_path, "data: {train: t.xyz}\ntraining: {epochs: 10}\n")
    with pytest.raises(ConfigError, match="exclude each other"):
        load_config(path, ["training.minutes=2"])
    config = load_config(path, ["training.minutes=2", "training.epochs=null"])
    assert (config.training.minutes, config.training.epochs) == (2, None)


def test_paths_are_those_of_the_file(tmp_path):
    text = "data: {train: a/t.xyz, valid: ~/v.xyz, test: /abs/x.xyz}\n"
    config = load_config(write(tmp_path, text))
    assert config.data.train == str(tmp_path / "a/t.xyz")
    assert config.data.valid == str(Path.home() / "v.xyz")
    assert config.data.test == "/abs/x.xyz"
    assert config.output == str(tmp_path / "gnnforce-run")
    fraction = load_config(write(tmp_path, "data: {train: t.xyz, valid: '0.25'}\n"))
    assert fraction.data.valid == 0.25


@pytest.mark.parametrize("end", [{"epochs": 7}, {"minutes": 1.5}])
def test_a_saved_configuration_is_the_same(end, tmp_path):
    values = MINIMAL | {"training": end | {"derivative_members": "all"}}
    values["data"] = {"train": "/t.xyz", "references": {1: -13.6}}
    values |= {"output": "/run"}
    config = make_config(values)
    save_config(config, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml") == config


def test_heads_of_the_model_are_those_of_the_data():
    config = make_config({"data": {"train": "t", "heads": {"pbe": {}, "cc": {}}}})
    assert list(config.model.heads) == ["pbe", "cc"]
    assert config.model.heads["cc"].members == 8
    with pytest.raises(ConfigError, match=r"'pb', which model.heads has not.*'pbe'"):
        make_config(
            {"data": {"train": "t", "heads": {"pb": {}}}, "model": {"heads": {"pbe": {}}}}
        )
