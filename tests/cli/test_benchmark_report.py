import pytest

from gnnforce.cli.benchmark_report import cells, check_files, content, draw, print_all
from gnnforce.errors import UserError
from gnnforce.testing.benchmark import Comparison
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.benchmark_rows import Row, fill_ratios
from gnnforce.testing.benchmark_setup import Setup, machine

REASON = "needs features that are pooled"


@pytest.fixture
def comparison():
    rows = []
    for n, loop, auto in ((1, 0.002, 0.002), (16, 0.032, 0.004)):
        for name, seconds in (("loop", loop), ("auto", auto)):
            row = Row("molecule", n, name, used="chain" if name == "auto" else "loop")
            row.set_times([seconds])
            row.agreement = {
                "forces_relative_from_loop": 1e-7,
                "forces_relative_from_float64_loop": 2e-6,
            }
            row.agrees, row.peak_mib = True, 2.0 * n
            rows.append(row)
        rows.append(Row("molecule", n, "jacobian", status="refused", reason=REASON))
    fill_ratios(rows)
    sizes = {"n_atoms": 15, "n_edges": 186, "n_graphs": 1, "n_parameters": 10}
    return Comparison("molecule", "float32", sizes, rows)


def test_a_line_of_the_table(comparison):
    row = comparison.rows[4]
    assert cells(row, training=False) == [
        "16",
        "auto (chain)",
        "4.00",
        "4.00-4.00",
        "2.00",
        "8.00",
        "32.0",
        "16.0",
        "1.0e-07",
        "2.0e-06",
    ]
    assert cells(row, training=True)[-2:] == ["-", "-"]
    assert cells(comparison.rows[2], training=False)[:3] == ["1", "jacobian", "refused"]


def test_reasons_stand_under_the_table(comparison, capsys):
    print_all(machine(), [comparison], training=False)
    out = capsys.readouterr().out
    assert f"jacobian, N=1: refused: {REASON}" in out
    assert f"jacobian, N=16: refused: {REASON}" in out
    assert "15 atoms, 186 edges" in out


def test_one_line_a_strategy_and_none_for_those_without_times(
    comparison, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(
        "gnnforce.cli.plots.save", lambda figure, path: drawn.append(figure) or path
    )
    draw([comparison, comparison], tmp_path / "a.png", training=False)
    left, right = drawn[0].axes
    assert [line.get_label() for line in left.lines] == ["loop", "auto"]
    assert left.lines[0].get_xdata().tolist() == [1, 16]
    assert left.lines[0].get_ydata().tolist() == [2.0, 32.0]
    assert (right.get_xscale(), right.get_yscale()) == ("log", "log")


def test_what_is_written(comparison):
    plan = Plan(members=(1, 16))
    found = content(machine(), plan, [Setup("molecule")], [comparison])
    assert found["agrees"] is True
    assert found["workloads"][0]["setup"]["workload"] == "molecule"
    comparison.rows[1].agrees = False
    assert not content(machine(), plan, [Setup("molecule")], [comparison])["agrees"]


def test_files_are_checked_first(tmp_path):
    check_files(tmp_path / "a.json", tmp_path / "a.png")
    check_files(None, None)
    for json, plot, message in (
        (tmp_path / "no" / "a.json", None, "no folder"),
        (tmp_path, None, "is a folder"),
        (None, tmp_path / "a.svg", "a.png"),
    ):
        with pytest.raises(UserError, match=message):
            check_files(json, plot)


def test_a_plot_without_matplotlib_is_refused_with_a_remedy_that_exists(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("gnnforce.cli.benchmark_report.find_spec", lambda _: None)
    check_files(tmp_path / "a.json", None)
    with pytest.raises(UserError, match=r"pip install matplotlib.*leave --plot out"):
        check_files(None, tmp_path / "a.png")
