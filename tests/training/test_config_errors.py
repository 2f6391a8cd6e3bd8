from gnnforce.training.config import TrainingConfig
from gnnforce.training.config_errors import dotted, option_names


def test_names_of_alternatives_are_left_out():
    values = {"data": {"references": {"H": "x"}}, "list": [{"at": 1}]}
    location = (
        "data",
        "references",
        "dict[str,union[float,dict[str,float]]]",
        "H",
        "float",
    )
    assert dotted(location, values) == "data.references.H"
    assert dotted(("list", 0, "at"), values) == "list.0.at"
    assert dotted(("list", 5), values) == "list.5"
    assert dotted((), values) == ""


def test_every_option_has_a_name():
    names = option_names(TrainingConfig)
    expected = {
        "seed",
        "data.train",
        "data.heads.energy_unit",
        "model.heads.members",
        "training.weights.forces",
        "training.weight_schedule.at",
    }
    assert expected <= set(names)
