"""What ``gnnforce info`` says about a model."""

from gnnforce.models.checkpoint import load
from gnnforce.readouts.head import Head

from .conftest import ISOLATED, make_model


def test_a_model_in_json(run, committee):
    report = run("info", committee, "--json").json()
    model = load(committee)
    assert report["architecture"] == "SchNet"
    assert report["elements"] == ["H", "C", "O"]
    assert report["cutoff"] == 4.0
    assert [(h["name"], h["members"]) for h in report["heads"]] == [("energy", 3)]
    assert report["references"]["energy"] == {"H": -13.6, "C": -1029.0, "O": -2041.0}
    assert report["units"]["energy"] == "eV"
    assert report["dtype"] == "float64"
    assert report["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_model_for_people(run, tmp_path):
    model = make_model(Head("pbe", members=2, hidden=(8,)), Head("cc", hidden=(8,)))
    model.set_references(dict.fromkeys(("pbe", "cc"), ISOLATED["energy"]))
    model.metadata = {"data": {"train": "acac.xyz", "frames": {"train": 450}}}
    model.save(tmp_path / "model.pt")
    text = run("info", tmp_path / "model.pt").out
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "H C O" in lines["elements"]
    assert "4 Å" in lines["cutoff"]
    assert "-1029.0000" in lines["pbe (default)"]
    assert "E0(C) eV" in lines["head"]
    assert "450" in lines["data.frames.train"]
