import pytest
from pydantic import ValidationError

from gnnforce.training.sections import (
    DataConfig,
    HeadConfig,
    LabelConfig,
    ModelConfig,
    OptimConfig,
    StageConfig,
)


@pytest.mark.parametrize("value", ["1e-3", 0.001, "0.001"])
def test_numbers_given_as_text(value):
    """Case C43: YAML 1.1 reads 1e-3 as text."""
    assert OptimConfig(learning_rate=value).learning_rate == 0.001


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (OptimConfig, {"learning_rat": 0.1}),
        (OptimConfig, {"epochs": 0}),
        (OptimConfig, {"epochs": True}),
        (OptimConfig, {"minutes": 1, "epochs": 2}),
        (OptimConfig, {"learning_rate": "fast"}),
        (OptimConfig, {"learning_rate": float("nan")}),
        (OptimConfig, {"ema_decay": 1.0}),
        (OptimConfig, {"weights": {"energy": -1}}),
        (OptimConfig, {"derivative_members": 0}),
        (OptimConfig, {"derivative_members": "some"}),
        (OptimConfig, {"weight_schedule": [{"at": 0.5}, {"at": 0.5}]}),
        (OptimConfig, {"weight_schedule": [{"at": 1.5}]}),
        (DataConfig, {}),
        (DataConfig, {"train": "x", "valid": 0}),
        (DataConfig, {"train": "x", "valid": 1.5}),
        (DataConfig, {"train": "x", "heads": {}}),
        (DataConfig, {"train": "x", "references": {"H": "much"}}),
        (ModelConfig, {"cutoff": 1e9}),  # no search for neighbors would end
        (ModelConfig, {"heads": {"a b": {}}}),  # no key of extended XYZ
        (ModelConfig, {"heads": {"free": {}}}),  # free_energy is ASE's own
        (HeadConfig, {"members": 0}),
        (HeadConfig, {"kind": "sum"}),
        (LabelConfig, {"enrgy": "E"}),
        (StageConfig, {"energy": 1.0}),
    ],
)
def test_wrong_values_are_refused(model, values):
    with pytest.raises(ValidationError):
        model(**values)


def test_an_end_is_always_set():
    assert OptimConfig().epochs == 100
    assert OptimConfig(minutes=3).epochs is None
    assert OptimConfig(minutes=None, epochs=7).epochs == 7


def test_references_in_every_spelling():
    """Case C30: numbers, texts and symbols are kept apart from heads."""
    for given in ({"H": -13.6}, {1: -13.6}, {"1": -13.6}):
        (value,) = DataConfig(train="x", references=given).references.values()
        assert value == -13.6
    nested = DataConfig(train="x", references={"pbe": {8: -432, 1: -13.6}}).references
    assert nested == {"pbe": {"8": -432.0, "1": -13.6}}


def test_valid_is_a_fraction_a_path_or_nothing():
    assert DataConfig(train="x", valid="0.2").valid == 0.2
    assert DataConfig(train="x", valid="e.xyz").valid == "e.xyz"
    assert DataConfig(train="x", valid=None).valid is None
