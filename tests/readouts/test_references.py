import copy

import pytest
import torch

from gnnforce.errors import ConfigError, UnknownHeadError
from gnnforce.readouts.head import Head
from gnnforce.readouts.references import AtomicReferences

E0 = {1: -13.123456789012345, 8: -2041.123456789012345}


@pytest.fixture
def references():
    return AtomicReferences((Head("a"), Head("b")), [8, 1])


def test_by_head_and_element(references):
    references.set_energies({"b": E0 | {26: -1.0}})  # more elements than needed (C30)
    references.set_scales({"a": 2.0, "b": {1: 0.5, 8: 0.25}})
    assert references.as_dict("energies") == {"a": {8: 0.0, 1: 0.0}, "b": E0}
    assert references.as_dict("scales") == {"a": {8: 2.0, 1: 2.0}, "b": {8: 0.25, 1: 0.5}}


def test_no_precision_is_lost_on_the_way(references):
    references.set_energies({"a": E0})
    moved = copy.deepcopy(references).to(torch.float32).half().to(torch.float64)
    assert moved.as_dict("energies")["a"] == E0
    assert moved.energies.dtype == torch.float64


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"c": E0}, UnknownHeadError, "no head 'c'"),
        ({"a": {1: -13.0}}, ConfigError, "no reference energy for O"),
        ({"a": {1: float("nan"), 8: 0.0}}, ConfigError, "finite"),
    ],
)
def test_energies_refused(references, table, error, message):
    with pytest.raises(error, match=message):
        references.set_energies(table)
    assert not references.energies.any()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), {1: 1.0}])
def test_scales_refused(references, scale):
    with pytest.raises(ConfigError, match=r"positive|finite"):
        references.set_scales({"a": scale})
    assert (references.scales == 1).all()
