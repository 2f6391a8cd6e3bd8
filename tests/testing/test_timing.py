import time

import pytest

from gnnforce.testing import timing
from gnnforce.testing.timing import in_turns, seconds_of, spread


def test_spread_is_median_and_quartiles():
    assert spread([4.0, 1.0, 3.0, 2.0, 100.0]) == (3.0, 2.0, 4.0)
    assert spread([2.0]) == (2.0, 2.0, 2.0)


def test_a_call_is_timed():
    assert 0.02 <= seconds_of(lambda: time.sleep(0.02)) < 5


def test_candidates_take_turns_in_changing_order():
    calls = []
    names = ["a", "b", "c", "d"]
    runs = {name: (lambda name=name: calls.append(name)) for name in names}
    turns = []
    times = in_turns(
        runs, dict.fromkeys(names, 1.0), 6, before_turn=lambda: turns.append(1)
    )
    rounds = [calls[k : k + 4] for k in range(0, len(calls), 4)]
    assert len(rounds) == 6
    assert all(sorted(one) == names for one in rounds)
    assert len({tuple(one) for one in rounds}) > 2
    assert {name: len(t) for name, t in times.items()} == dict.fromkeys(names, 6)
    assert len(turns) == 24


def test_quick_ones_are_called_warm_and_more_often():
    calls = []
    times = in_turns({"a": lambda: calls.append(1)}, {"a": 0.0}, 2)
    assert len(times["a"]) == 2 * timing.MOST_CALLS
    assert len(calls) == 2 * (1 + timing.MOST_CALLS)


def test_slow_ones_take_fewer_turns():
    runs = {"slow": lambda: time.sleep(0.03), "quick": lambda: None}
    times = in_turns(runs, dict.fromkeys(runs, 1.0), 8, budget=0.05)
    assert len(times["slow"]) == 2
    assert len(times["quick"]) == 8


def test_no_candidates_and_failing_ones():
    assert in_turns({}, {}, 3) == {}

    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_turns({"a": broken}, {"a": 1.0}, 1)
