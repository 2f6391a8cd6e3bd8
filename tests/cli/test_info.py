"""``gnnforce info`` tells models from data."""

from pathlib import Path

import numpy as np
import pytest

from gnnforce.cli.info import looks_like_model


def test_a_file_is_a_model_by_its_content(run, committee, tmp_path):
    copy = tmp_path / "best"
    copy.write_bytes(committee.read_bytes())
    assert run("info", copy, "--json").json()["architecture"] == "SchNet"


@pytest.mark.parametrize("name", ["model.pt", "last.ckpt"])
def test_a_file_is_a_model_by_its_ending(name):
    assert looks_like_model(Path(name))


def test_other_archives_are_data(tmp_path):
    np.savez(tmp_path / "data.npz", energy=np.zeros(2))
    assert not looks_like_model(tmp_path / "data.npz")
    assert not looks_like_model(tmp_path / "nowhere.xyz")
