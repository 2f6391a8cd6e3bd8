import pytest
import torch
from ase import Atoms

from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.settings import place_model, select_head, warn_of_charge
from gnnforce.errors import ModelFileError, UnknownHeadError, UserError
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head


@pytest.fixture
def model():
    return ForceField(SchNet([1, 8], n_features=4), [Head("a"), Head("b")])


def test_model_that_fits_is_shared(model):
    assert place_model(model, None, None) is model
    assert place_model(model, "cpu", "float32") is model


def test_conversion_leaves_the_original(model):
    double = place_model(model, None, torch.float64)
    assert double is not model
    assert (double.dtype, model.dtype) == (torch.float64, torch.float32)


def test_file_in_another_precision(model, tmp_path):
    model.save(tmp_path / "m.pt")
    assert place_model(str(tmp_path / "m.pt"), "cpu", "float64").dtype == torch.float64
    assert place_model(tmp_path / "m.pt", None, None).dtype == torch.float32
    with pytest.raises(ModelFileError, match="nowhere"):
        place_model(tmp_path / "nowhere.pt", None, None)


def test_heads(model):
    assert select_head(model, None) == "a"
    assert select_head(model, 1) == select_head(model, "b") == "b"
    for wrong in ("A", 2, -1):
        with pytest.raises(UnknownHeadError, match="a, b"):
            select_head(model, wrong)


def test_heads_without_training_are_refused(model):
    model.metadata["untrained_heads"] = ["a"]
    assert select_head(model, "b") == "b"
    for head in ("a", 0, None):
        with pytest.raises(UnknownHeadError, match=r"no labels.*trained heads: b"):
            select_head(model, head)


def test_wrong_types(model):
    with pytest.raises(UserError, match="int"):
        place_model(3, None, None)
    with pytest.raises(UserError, match="float16"):
        place_model(model, None, "float16")


def test_charge_warning():
    atoms = Atoms("H")
    assert not warn_of_charge(atoms)
    atoms.info["total_charge"] = 1
    with pytest.warns(UserWarning, match="charge 1"):
        assert warn_of_charge(atoms)
