"""Pieces of the panels: ranges, ticks and numbers that can be read."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from gnnforce.cli import panels
from gnnforce.cli.comparison import Comparison


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (1.234, "1.23"), (56.78, "56.8"), (1234.5, "1234")],
)
def test_three_digits(value, text):
    assert panels._three(value) == text


def test_equal_values_still_have_a_range():
    low, high = panels._padded_range(np.array([3.0, 3.0]))
    assert low < 3.0 < high


def test_a_title_names_the_head_only_where_there_are_several():
    one = Comparison("pbe", "forces", "eV/Å", np.zeros(1), np.zeros(1))
    assert panels.title(one, n_heads=1) == "forces"
    assert panels.title(one, n_heads=2) == "pbe: forces"


def test_short_logarithmic_axes_have_labels_without_exponents():
    axis = Figure().subplots()
    axis.set(xscale="log", xlim=(0.004, 0.03))
    panels._decimal_ticks(axis.xaxis)
    axis.figure.canvas.draw()
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert {"0.005", "0.01", "0.02"} <= set(labels)


def test_chance_hits_do_not_stretch_the_axis_of_errors():
    error = np.array([1e-12, *np.linspace(0.01, 0.1, 99)])
    limits = panels._logarithmic_limits(np.full(100, 0.05), error)
    assert limits[2] > 1e-3
    assert limits[3] > 0.1
