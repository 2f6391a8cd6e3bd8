from contextlib import nullcontext
from itertools import pairwise

import pytest

from gnnforce.errors import ConfigError
from gnnforce.training.schedule import (
    check_schedule,
    labels_in_use,
    learning_rate,
    weights_at,
)
from gnnforce.training.sections import OptimConfig, StageConfig, WeightsConfig


def test_rate_rises_over_the_steps_asked_for_but_a_tenth_of_the_run_at_most():
    options = OptimConfig(learning_rate=1.0, warmup_steps=100)
    assert learning_rate(0, 0.0, options) == pytest.approx(0.01)
    assert learning_rate(49, 0.001, options) == pytest.approx(0.5, rel=1e-3)
    # 20 steps in all: the rise is over after two
    assert learning_rate(2, 0.1, options) > 0.97
    no_rise = OptimConfig(learning_rate=1.0, warmup_steps=0)
    assert learning_rate(0, 0.0, no_rise) == 1.0


def test_rate_falls_to_its_end():
    options = OptimConfig(learning_rate=2.0, warmup_steps=1, final_rate=0.01)
    rates = [learning_rate(s, s / 100, options) for s in range(10, 101)]
    assert all(a > b for a, b in pairwise(rates))
    assert rates[-1] == pytest.approx(0.02)
    assert learning_rate(500, 1.5, options) == pytest.approx(0.02)  # past the end


def test_stages_change_what_they_name_without_a_jump():
    stages = [StageConfig(at=0.5, forces=2.0), StageConfig(at=0.75, energy=9.0)]
    first = WeightsConfig(energy=1.0, forces=8.0, stress=0.0)
    assert weights_at(0.5, first, stages) == first
    half = weights_at(0.55, first, stages)
    assert half.forces == pytest.approx(4.0)
    assert weights_at(0.7, first, stages) == WeightsConfig(energy=1, forces=2, stress=0)
    assert weights_at(0.8, first, stages).energy == pytest.approx(3.0)
    assert weights_at(1.0, first, stages) == WeightsConfig(energy=9, forces=2, stress=0)


def test_a_change_from_or_to_zero_is_linear_and_late_ones_end_in_time():
    first = WeightsConfig(energy=0.0, forces=1.0, stress=0.0)
    stages = [StageConfig(at=0.9, energy=4.0, forces=0.0)]
    middle = weights_at(0.925, first, stages)
    assert middle.energy == pytest.approx(2.0)
    assert middle.forces == pytest.approx(0.5)
    assert weights_at(0.96, first, stages).energy == 4.0


def test_a_quantity_is_in_use_when_it_has_a_weight_at_some_point():
    off = WeightsConfig(energy=0.0, forces=1.0, stress=0.0)
    late = (StageConfig(at=0.5, energy=1.0),)
    assert labels_in_use(OptimConfig(weights=off, weight_schedule=())) == ("forces",)
    assert labels_in_use(OptimConfig(weights=off, weight_schedule=late)) == (
        "energy",
        "forces",
    )


@pytest.mark.parametrize(
    ("first", "late", "where"),
    [
        ({"energy": 0, "forces": 0}, {"at": 0.5, "forces": 1}, r"training\.weights"),
        ({"energy": 1, "forces": 1}, {"at": 0.5, "energy": 0, "forces": 0}, "at 0.5"),
        ({"energy": 1, "forces": 1}, {"at": 0.5, "energy": 0}, None),
    ],
)
def test_no_part_of_a_run_is_without_a_loss(first, late, where):
    options = OptimConfig(weights=first, weight_schedule=[late])  # stress has a weight
    expected = nullcontext() if where is None else pytest.raises(ConfigError, match=where)
    with expected:
        check_schedule(options, ["energy", "forces"])
