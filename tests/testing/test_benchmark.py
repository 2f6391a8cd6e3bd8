"""Comparisons as a whole, inside this process; no time is asserted."""

import pytest

from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UserError
from gnnforce.models.force_field import ForceField
from gnnforce.testing.benchmark import compare
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.benchmark_setup import Setup

SETUP = Setup("molecule", sizes={"n_features": 8, "n_layers": 1})


def quick(**more):
    return Plan(members=(1, 4), repeats=2, memory=False, **more)


@pytest.mark.parametrize("training", [False, True])
def test_every_strategy_is_measured_or_says_why_not(training):
    heard = []
    plan = quick(training=training)
    found = compare(SETUP, plan, heard.append)
    assert [(r.n_outputs, r.strategy) for r in found.rows] == [
        (n, name) for n in (1, 4) for name in (*OF_MODELS, "auto")
    ]
    for row in found.rows:
        if row.status == "measured":
            assert row.agrees is True, row
            assert row.median_ms > 0
            assert row.n_times >= 2
            assert row.used in OF_MODELS
        else:
            assert row.status == "refused"
            assert row.reason
    measured = {row.strategy for row in found.rows if row.status == "measured"}
    assert {"loop", "batched", "auto"} <= measured
    assert not found.wrong
    assert 0 < len(heard) <= plan.n_steps
    assert found.sizes["n_edges"] == 186
    assert found.dtype == "float32"


def altered(monkeypatch, name, change):
    """Let ``change`` alter what one strategy predicts."""
    predict = ForceField.predict

    def altered_predict(self, graph, wanted=("energy", "forces"), **options):
        out = predict(self, graph, wanted, **options)
        if options.get("strategy") == name:
            change(out)
        return out

    monkeypatch.setattr(ForceField, "predict", altered_predict)


def test_a_wrong_strategy_is_found(monkeypatch):
    """Forces that are wrong for the last output only, by half a percent."""

    def last_forces(out):
        out["forces"].detach()[-1] *= 1.005

    altered(monkeypatch, "batched", last_forces)
    found = compare(SETUP, quick(strategies=("batched", "auto")))
    assert [(row.n_outputs, row.strategy) for row in found.wrong] == [
        (1, "batched"),
        (4, "batched"),
    ]
    assert found.wrong[1].agreement["forces_relative_from_loop"] > 1e-4


def test_a_strategy_that_refuses_is_reported(monkeypatch):
    def refuse(_):
        raise UserError("not for this model; use another")

    altered(monkeypatch, "batched", refuse)
    found = compare(SETUP, quick(strategies=("batched",)))
    shy = [row for row in found.rows if row.strategy == "batched"]
    assert [row.status for row in shy] == ["refused", "refused"]
    assert shy[0].reason == "not for this model; use another"
    assert shy[0].median_ms is None


def test_with_memory():
    found = compare(SETUP, Plan(members=(4,), strategies=("loop",), repeats=1))
    assert all(row.peak_mib > 0 for row in found.rows)
    assert all(row.peak_ratio_to_one for row in found.rows)


def test_plain_values():
    plain = compare(SETUP, quick(strategies=("loop",))).plain()
    assert plain["rows"][0]["strategy"] == "loop"
    assert plain["rows"][0]["agreement"]["forces_from_loop"] == 0.0
