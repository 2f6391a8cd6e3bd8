import pytest
import torch

from gnnforce.errors import ConfigError
from gnnforce.training.building import build_model, find_backbone

from .helpers import settings


def test_the_start_is_a_function_of_the_seed_alone():
    before = torch.get_rng_state()
    one, same = (build_model(settings(), [1]) for _ in range(2))
    other = build_model(settings(top={"seed": 5}), [1])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    again = build_model(settings(), [1])
    states = [m.state_dict() for m in (one, same, again, other)]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name])
        assert torch.equal(value, states[2][name])
    assert any(not torch.equal(value, states[3][n]) for n, value in states[0].items())


def test_what_is_asked_for_is_built():
    model = {"backbone": "PaiNN", "n_layers": 2, "elements": ["Si"], "repulsion": True}
    model["heads"] = {"energy": {"members": 3, "kind": "node_mean", "hidden": [5]}}
    built = build_model(settings(model=model, training={"dtype": "float32"}), [8, 1])
    assert type(built.backbone).__name__ == "PaiNN"
    assert built.elements == [1, 8, 14]
    assert built.repulsion is not None
    assert built.dtype == torch.float32
    head = built.heads[0]
    assert (head.name, head.members, head.kind, head.hidden) == (
        "energy",
        3,
        "node_mean",
        (5,),
    )


def test_members_of_a_committee_start_different():
    heads = {"energy": {"members": 3, "hidden": [4]}}
    built = build_model(settings(model={"heads": heads}), [1])
    weights = next(built.readouts.parameters())
    assert not torch.equal(weights[0], weights[1])


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match=r"'pain'.*PaiNN, SchNet"):
        find_backbone("pain")
    with pytest.raises(ConfigError, match="Xx"):
        build_model(settings(model={"elements": ["Xx"]}), [1])


def test_checkpointing_is_for_those_who_ask():
    assert not build_model(settings(), [1]).backbone.checkpointing
    model = build_model(settings(training={"checkpointing": True}), [1])
    assert model.backbone.checkpointing
