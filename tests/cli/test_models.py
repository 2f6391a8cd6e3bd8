"""Which model, where, and which head is meant."""

import pytest
import torch

from gnnforce.cli.models import check_device, open_model, pick_head, pick_heads
from gnnforce.errors import ModelFileError, UnknownHeadError, UserError
from gnnforce.models.checkpoint import load


def test_dtype_is_the_models_own_unless_named(committee):
    assert open_model(committee).dtype == torch.float64
    assert open_model(committee, dtype="float32").dtype == torch.float32
    with pytest.raises(UserError, match="float16"):
        open_model(committee, dtype="float16")


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "meta", "cpu:x"])
def test_devices_that_are_not_there(device):
    with pytest.raises(UserError, match="cpu"):
        check_device(device)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"nowhere\.pt"):
        open_model(tmp_path / "nowhere.pt")


def test_c44_heads_by_name_number_or_all(three_heads):
    model = load(three_heads)
    assert pick_heads(model, None) == pick_heads(model, []) == ["pbe"]
    assert pick_heads(model, ["cc", "0", "cc"]) == ["cc", "pbe"]
    assert pick_heads(model, ["all"]) == ["pbe", "hf", "cc"]
    assert pick_head(model, "1") == "hf"


@pytest.mark.parametrize("name", ["PBE", "3", "-1", ""])
def test_c44_unknown_heads_list_the_known(three_heads, name):
    with pytest.raises(UnknownHeadError, match="pbe, hf, cc"):
        pick_head(load(three_heads), name)


def test_c45_untrained_heads_are_left_out_of_all_and_refused_by_name(three_heads):
    model = load(three_heads)
    model.metadata["untrained_heads"] = ["hf"]
    assert pick_heads(model, ["all"]) == ["pbe", "cc"]
    with pytest.raises(UnknownHeadError, match="no labels in training"):
        pick_heads(model, ["hf"])
