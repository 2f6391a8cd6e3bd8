import json
import warnings

import pytest
import torch

from gnnforce.derivatives.constants import (
    cache_file,
    constants_for,
    write_constants,
)
from gnnforce.derivatives.cost import DEFAULTS, REFERENCE, Constants, Rate
from gnnforce.errors import UserError

CPU = torch.device("cpu")
PAINN = DEFAULTS[REFERENCE]
OWN = Constants(dict.fromkeys(PAINN.rates, Rate(1.0, 2.0, 3.0, 0.0)), product=4e-9)
OTHER = Constants(dict.fromkeys(PAINN.rates, Rate(5.0, 0.0, 0.0, 1.0)), product=1e-9)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GNNFORCE_CACHE", str(tmp_path / "new"))
    return tmp_path / "new"


def test_where(monkeypatch, tmp_path, folder):
    assert cache_file() == folder / "strategies.json"
    monkeypatch.delenv("GNNFORCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "gnnforce" / "strategies.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_file() == tmp_path / "home" / ".cache" / "gnnforce" / "strategies.json"


def test_defaults_until_measured():
    assert constants_for(CPU, "PaiNN") is PAINN
    assert constants_for(CPU, "SchNet") is DEFAULTS["SchNet"]
    assert constants_for(CPU, "Somebody's") is PAINN
    path = write_constants(CPU, {"PaiNN": OWN, "SchNet": OTHER})
    assert path == cache_file()
    assert constants_for(CPU, "PaiNN") == OWN
    assert constants_for(CPU, "SchNet") == OTHER
    assert constants_for(CPU, "Somebody's") == OWN
    assert constants_for(torch.device("meta"), "PaiNN") is PAINN
    assert [file.name for file in path.parent.iterdir()] == ["strategies.json"]


def test_devices_stand_beside_each_other():
    write_constants(torch.device("meta"), {"PaiNN": OWN})
    write_constants(CPU, {"PaiNN": OTHER})
    assert constants_for(torch.device("meta"), "PaiNN") == OWN
    assert constants_for(CPU, "PaiNN") == OTHER


BROKEN = {
    "not JSON": "{",
    "a list": "[]",
    "nothing in it": "{}",
    "another format": '{"format": 99, "devices": {}}',
    "a rate is missing": json.dumps(
        {"format": 1, "devices": {"cpu": {"PaiNN": {"rates": {}, "product": 1.0}}}}
    ),
    "not the reference": json.dumps(
        {"format": 1, "devices": {"cpu": {"SchNet": PAINN.as_dict()}}}
    ),
    "negative": json.dumps(
        {
            "format": 1,
            "devices": {"cpu": {"PaiNN": {**PAINN.as_dict(), "product": -1.0}}},
        }
    ),
    "text for a number": json.dumps(
        {
            "format": 1,
            "devices": {"cpu": {"PaiNN": {**PAINN.as_dict(), "product": "fast"}}},
        }
    ),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_warned_about_once(folder, content):
    folder.mkdir()
    (folder / "strategies.json").write_text(content)
    with pytest.warns(UserWarning, match=r"cannot be used .*gnnforce\.calibrate"):
        assert constants_for(CPU, "PaiNN") is PAINN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert constants_for(CPU, "PaiNN") is PAINN
    write_constants(CPU, {"PaiNN": OWN})  # mends it
    assert constants_for(CPU, "PaiNN") == OWN


def test_a_folder_that_cannot_be_made(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GNNFORCE_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write .* set GNNFORCE_CACHE"):
        write_constants(CPU, {"PaiNN": OWN})
    assert constants_for(CPU, "PaiNN") is PAINN
