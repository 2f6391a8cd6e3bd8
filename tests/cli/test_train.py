"""``gnnforce train``: a file and words to a model; the files it leaves."""

import pytest
import yaml

from gnnforce.models.checkpoint import load

CONFIG = """
data: {train: water.xyz, valid: 0.25, heads: {energy: {}}}
model:
  {backbone: schnet, n_features: 8, n_layers: 1, n_radial: 6, heads: {energy: {members: 2}}}
training: {epochs: 2, batch_size: 4}
output: from-file
"""


@pytest.fixture
def config(water):
    path = water.with_name("config.yaml")  # which names the data beside it
    path.write_text(CONFIG)
    return path


def test_a_model_and_its_files(run, config, tmp_path):
    report = run("train", config, "--json").json()
    folder = tmp_path / "from-file"
    assert report["model"] == str(folder / "model.pt")
    names = {path.rsplit("/", 1)[1] for path in report["files"]}
    assert {"model.pt", "config.yaml", "train.log", "metrics.json"} <= names
    assert load(report["model"]).head_names == ["energy"]
    assert report["metrics"]["validation"]["energy"]["forces"]["count"] == 2 * 9


def test_c43_words_win_over_the_file(run, config, tmp_path):
    folder = tmp_path / "elsewhere"
    words = [
        "training.epochs=1",
        "model.heads.energy.members=3",
        "training.learning_rate=1e-3",
    ]
    report = run("train", config, *words, "-o", folder, "--json").json()
    assert report["folder"] == str(folder)
    resolved = yaml.safe_load((folder / "config.yaml").read_text())
    assert resolved["training"]["epochs"] == 1
    assert resolved["training"]["learning_rate"] == 0.001
    assert load(folder / "model.pt").n_outputs == 3


def test_the_folder_of_an_option_is_relative_to_where_one_is(
    run, config, tmp_path, monkeypatch
):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    run("train", config, "training.epochs=1", "-o", "here")
    assert (tmp_path / "inside" / "here" / "model.pt").exists()


def test_resume_goes_on(run, config):
    first = run("train", config, "training.epochs=1", "--json").json()
    second = run("train", config, "training.epochs=2", "--resume", "--json").json()
    assert (first["metrics"]["epochs"], second["metrics"]["epochs"]) == (1, 2)


def test_text_for_people_and_silence_when_asked(run, config):
    told = run("train", config)
    assert "8 frames" in told.err
    assert "validation errors" in told.out
    assert "meV/Å" in told.out
    assert run("train", config, "--no-progress").err == ""


def test_the_whole_story_trained_tested_moved(run, config, water, tmp_path):
    """What is trained on keys of its own is tested on them, and answers in dynamics."""
    model = tmp_path / "from-file" / "model.pt"
    assert run("train", config).status == 0
    report = run("evaluate", model, water, "--json").json()
    assert report["heads"]["energy"]["uncertainty"]["forces"]["n_values"] == 8 * 9
    words = ["md", model, water, "-o", tmp_path / "md", "--steps", 3, "--no-plots"]
    assert run(*words).status == 0
    described = run("info", model, "--json").json()
    assert described["metadata"]["training"]["data"]["n_train"] == 6
    assert "validation errors" in run("info", model).out


@pytest.mark.parametrize("name", ["run #1", "a: b", "[1]", "ünï {cöde}", '"q"'])
def test_the_folder_of_an_option_is_taken_to_the_letter(run, config, tmp_path, name):
    folder = tmp_path / name
    report = run("train", config, "training.epochs=1", "-o", folder, "--json").json()
    assert report["folder"] == str(folder)
    assert (folder / "model.pt").is_file()
