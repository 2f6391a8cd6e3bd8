import numpy as np
import pytest

from gnnforce.datasets.given import given_references
from gnnforce.errors import ConfigError


@pytest.mark.parametrize(
    "given",
    [
        {"H": -13.6, "O": -432},
        {8: -432, 1: -13.6},
        {"1": -13.6, "8": "-432"},
        {np.int64(1): np.float64(-13.6), "O": -432.0},
        {"a": {"O": -432, "H": -13.6}, "c": {1: -13.6, 8: -432}},
    ],
)
def test_spellings(given):  # C30
    expected = {1: -13.6, 8: -432.0}
    assert given_references(given, ["a", "c"], []) == {"a": expected, "c": expected}


def test_levels_by_name_and_levels_too_many():  # C45
    messages = []
    given = {"a": {"H": -10}, "b": {"H": -20}, "c": {"H": -30}}
    assert given_references(given, ["c", "a"], messages) == {
        "c": {1: -30.0},
        "a": {1: -10.0},
    }
    assert messages == ["references of 'b' are not used: the heads are c, a"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Hy": -13.6}, "'Hy' is no element"),
        ({"H": "low"}, "the energy of H is 'low'"),
        ({"H": float("nan")}, "no number in eV"),
        ({"H": True}, "no number in eV"),
        ({"H": None}, "no number in eV"),
        ({"H": -13.6, 1: -13.7}, "H is given twice"),
        ({"H": -13.6, "a": {"H": -13.6}}, "not a mixture"),
        ({"a": {"H": [1, 2]}}, "references of head 'a'"),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        given_references(given, ["a"], [])


def test_nothing_given():
    assert given_references(None, ["a"], []) == {}
    assert given_references({}, ["a"], []) == {}
