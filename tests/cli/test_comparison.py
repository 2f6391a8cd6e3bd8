"""Energies are compared so that differences between frames show."""

import numpy as np

from gnnforce.cli.comparison import comparisons, energy_comparison
from gnnforce.training.evaluate import Compared, Evaluation


def compared(reference, mean, n_atoms, std=None):
    frames = np.arange(len(reference))
    arrays = [np.array(x, dtype=float) for x in (reference, mean)]
    spread = None if std is None else np.array(std, dtype=float)
    return Compared(*arrays, spread, frames, np.array(n_atoms))


def test_frames_of_one_size_are_compared_by_total_energy():
    found = compared([-100.0, -102.0], [-99.9, -102.1], [10, 10], std=[0.1, 0.2])
    result = energy_comparison("pbe", found)
    assert (result.quantity, result.unit) == ("energy", "eV")
    np.testing.assert_allclose(result.reference, [1.0, -1.0])
    np.testing.assert_allclose(result.error, [0.1, -0.1])
    np.testing.assert_allclose(result.std, [0.1, 0.2])
    assert "10 meV/atom" in result.note


def test_frames_of_many_sizes_are_compared_per_atom():
    found = compared([-100.0, -40.0], [-99.0, -40.0], [10, 4], std=[1.0, 0.2])
    result = energy_comparison("pbe", found)
    assert result.unit == "eV/atom"
    np.testing.assert_allclose(result.reference, [-10.0, -10.0])
    np.testing.assert_allclose(result.std, [0.1, 0.05])
    assert "707 meV a structure" in result.note


def test_a_row_for_each_head_with_labels():
    one = compared([1.0, 2.0], [1.0, 2.0], [3, 3])
    forces = compared(np.zeros((6, 3)), np.ones((6, 3)), [3] * 6)
    found = Evaluation({}, {"a": one, "b": one}, {"b": forces}, {})
    rows = comparisons(found, ["b", "c", "a"])
    assert [[one.quantity for one in row] for row in rows] == [
        ["energy", "forces"],
        ["energy"],
    ]
    assert rows[0][1].unit == "eV/Å"
