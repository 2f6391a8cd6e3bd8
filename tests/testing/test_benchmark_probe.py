import pytest

from gnnforce.testing import benchmark_probe
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.benchmark_probe import expected_seconds, probe
from gnnforce.testing.benchmark_rows import Row
from gnnforce.testing.benchmark_setup import Setup
from gnnforce.testing.peak_memory import Measured

SETUP = Setup("molecule", sizes={"n_features": 4, "n_layers": 1})


def tried(monkeypatch, answers, members=(1, 4, 16), **plan):
    """Probe the loop with made-up measurements; return the rows and what was measured."""
    calls = []

    def measure(_setup, call, **_options):
        calls.append(call.n_outputs)
        return answers[call.n_outputs]

    monkeypatch.setattr(benchmark_probe, "_measure_here", measure)
    rows = [Row("molecule", n, "loop") for n in members]
    probe(rows, SETUP, Plan(memory=False, **plan), lambda _: None)
    return rows, calls


def test_a_line_through_the_last_two():
    assert expected_seconds(8, [(2, 1.0)]) == 4.0
    assert expected_seconds(8, [(1, 9.0), (2, 1.0), (4, 2.0)]) == 4.0
    assert expected_seconds(8, [(2, 3.0), (4, 2.0)]) == 2.0  # never less than the last


def test_what_would_take_too_long_is_not_tried(monkeypatch):
    answers = {n: Measured("measured", seconds=1.0 * n) for n in (1, 4, 16)}
    rows, calls = tried(monkeypatch, answers, max_seconds=10.0)
    assert calls == [1, 4]
    assert [row.status for row in rows] == ["measured", "measured", "too slow"]
    assert rows[2].reason == "would take about 16 s, limit 10 s"


@pytest.mark.parametrize("status", ["too slow", "too large"])
def test_after_one_left_out_more_outputs_are_not_tried(monkeypatch, status):
    answers = {1: Measured("measured", seconds=0.1), 4: Measured(status, "too much")}
    rows, calls = tried(monkeypatch, answers, members=(1, 4, 16, 64))
    assert calls == [1, 4]
    assert [row.status for row in rows] == ["measured", status, status, status]
    assert rows[3].reason == "too much with 4 outputs; not tried with 64"


def test_refusals_are_kept_and_others_go_on(monkeypatch):
    answers = {n: Measured("refused", "not for me") for n in (1, 4, 16)}
    rows, calls = tried(monkeypatch, answers)
    assert calls == [1, 4, 16]
    assert {(row.status, row.reason) for row in rows} == {("refused", "not for me")}


def test_processes_of_their_own_give_memory_and_time():
    rows = [Row("molecule", 1, "loop")]
    heard = []
    probe(rows, SETUP, Plan(), heard.append)
    assert rows[0].peak_mib > 0
    assert rows[0].first_seconds > 0
    assert heard == ["molecule: trying loop, 1 outputs"]


def test_without_memory_the_call_is_made_here():
    rows = [Row("molecule", 1, "loop")]
    probe(rows, SETUP, Plan(memory=False), lambda _: None)
    assert rows[0].status == "measured"
    assert rows[0].first_seconds > 0
    assert rows[0].peak_mib is None
