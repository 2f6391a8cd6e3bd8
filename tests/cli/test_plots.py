"""The pictures say what they show, with units, and the right numbers."""

import numpy as np
import pytest

from gnnforce.cli import plots
from gnnforce.cli.comparison import Comparison
from gnnforce.errors import UserError


def comparison(n=100, std=True, **changes):
    rng = np.random.default_rng(0)
    reference, spread = rng.normal(size=n), np.exp(rng.normal(-3.0, 0.5, n))
    values = {
        "head": "energy",
        "quantity": "forces",
        "unit": "eV/Å",
        "reference": reference,
        "predicted": reference + spread * rng.normal(size=n),
        "std": spread if std else None,
    }
    return Comparison(**(values | changes))


def texts(axis):
    return "\n".join(box.txt.get_text() for box in axis.artists if hasattr(box, "txt"))


def test_parity_states_errors_and_units():
    reference = np.array([0.0, 1.0, 2.0, 3.0])
    shifted = comparison(reference=reference, predicted=reference + 0.0125, std=None)
    axis = plots.parity([[shifted]]).axes[0]
    assert "RMSE 12.5 meV/Å" in texts(axis)
    assert "MAE 12.5 meV/Å" in texts(axis)
    assert axis.get_xlabel() == "reference (eV/Å)"
    assert axis.get_xlim() == axis.get_ylim()


def test_many_values_are_drawn_by_density():
    few, many = (plots.parity([[comparison(n)]]) for n in (50, 5000))
    assert len(few.axes) == 1
    assert len(many.axes) == 2  # with the bar of the density
    assert many.axes[1].get_ylabel() == "values per cell"


def test_one_row_of_panels_for_each_head():
    rows = [[comparison(head=name), comparison(head=name)] for name in ("pbe", "cc")]
    figure = plots.parity(rows)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["pbe: forces"] * 2 + ["cc: forces"] * 2


def test_uncertainty_has_the_line_of_equality_and_bins():
    axis = plots.error_against_uncertainty([[comparison(400)]]).axes[0]
    equal, bins = axis.get_lines()
    np.testing.assert_array_equal(equal.get_xdata(), equal.get_ydata())
    assert len(bins.get_xdata()) == 12
    assert axis.get_xscale() == axis.get_yscale() == "log"
    ratio = np.array(bins.get_ydata()) / np.array(bins.get_xdata())
    assert np.all((ratio > 0.6) & (ratio < 1.6))
    assert "Spearman 0." in texts(axis)
    assert "scale 1.0" in texts(axis) or "scale 0.9" in texts(axis)


def test_uncertainty_without_a_committee_is_refused():
    with pytest.raises(UserError, match="nothing to plot"):
        plots.error_against_uncertainty([[comparison(std=False)]])


def test_zero_errors_do_not_break_the_logarithm():
    exact = comparison(predicted=np.ones(100), reference=np.ones(100))
    axis = plots.error_against_uncertainty([[exact]]).axes[0]
    assert "no value with an error" in texts(axis)


def log(n=50, committee=True):
    time = 2.0 * np.arange(n)
    table = {
        "time_fs": time,
        "epot": -9391.0 + np.sin(time),
        "etot": -9390.0 + np.sin(time),
        "temperature": 300 + 10 * np.cos(time),
    }
    std = {"forces_std_max": 0.2 + 0 * time, "forces_std_mean": 0.1 + 0 * time}
    return table | (std if committee else {})


def test_trajectory_shows_energy_temperature_and_uncertainty():
    figure = plots.trajectory(log(), target_temperature=300, max_force_std=0.5)
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert ["eV" in labels[0], "K" in labels[1], "eV/Å" in labels[2]] == [True] * 3
    assert figure.axes[-1].get_xlabel() == "time (ps)"
    np.testing.assert_allclose(figure.axes[0].get_lines()[0].get_xdata()[-1], 0.098)
    np.testing.assert_allclose(figure.axes[0].get_lines()[0].get_ydata()[0], 1.0)


def test_trajectory_without_a_committee_has_two_panels():
    assert len(plots.trajectory(log(committee=False)).axes) == 2


def test_trajectory_of_a_single_step(tmp_path):
    path = plots.save(plots.trajectory(log(1)), tmp_path / "one.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_global_setting_of_matplotlib_changes():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plots.parity([[comparison()]])
    assert dict(mpl.rcParams) == before


def test_missing_matplotlib_names_the_remedy(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match="--no-plots"):
        plots.require_matplotlib()
