import numpy as np
import pytest

from gnnforce.datasets.values import as_floats, as_matrices, split_states
from gnnforce.errors import DataError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1, -1.0),
        (np.int64(-1), -1.0),
        (np.uint8(200), 200.0),
        ("-1.0D+02", -100.0),
        ("1d0", 1.0),
        ("-.5", -0.5),
        (np.array(["1.5", "2D1"]), [1.5, 20.0]),
        ([1, 2], [1.0, 2.0]),
        (np.array([1.5, -2.0], dtype=">f4"), [1.5, -2.0]),
    ],
)
def test_numbers_of_any_type(value, expected):  # C32
    found = as_floats(value)
    assert found.dtype == np.float64
    assert found.dtype.isnative
    assert found.flags.writeable
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-1,5", "decimals with a point"),
        ("high", "no number"),
        ("", "empty"),
        (True, "no number"),
        (np.array([True, False]), "no number"),
        ({"a": 1}, "no number"),
        (np.array([None, 1.0], dtype=object), "no number"),
    ],
)
def test_what_is_no_number_is_refused(value, reason):
    with pytest.raises(DataError, match=reason):
        as_floats(value)


def test_input_is_copied_and_may_be_read_only():  # C32
    given = np.arange(6.0).reshape(3, 2)[::-1]
    given.setflags(write=False)
    found = as_floats(given)
    found[:] = 0
    np.testing.assert_array_equal(given, [[4, 5], [2, 3], [0, 1]])


def test_states_keep_their_order():
    by_axis = np.arange(2 * 4 * 3, dtype=float).reshape(2, 4, 3)  # atom, state, xyz
    flat = by_axis.reshape(2, 12)
    for given in (by_axis, flat):
        found = split_states(given, 4, (2, 3))
        for state in range(4):
            np.testing.assert_array_equal(found[state], by_axis[:, state])
    np.testing.assert_array_equal(
        split_states(np.array([[3.0, 1.0, 2.0]]), 3, ()), [3, 1, 2]
    )


def test_wrong_shapes_are_refused():
    with pytest.raises(DataError, match="2 values, where 1 fit; name one of several"):
        split_states(np.zeros(2), 1, ())
    with pytest.raises(DataError, match=r"shape \(3, 2\), but 2 atoms need \(2, 3\)"):
        split_states(np.zeros((3, 2)), 1, (2, 3))
    with pytest.raises(DataError, match=r"has 0 values, where 1 fit$"):
        split_states(np.zeros(0), 1, ())
    with pytest.raises(DataError, match="has 2 values, where 3 fit"):
        split_states(np.zeros((4, 6)), 3, (4, 3))
    with pytest.raises(DataError, match=r"shape \(3, 4, 3\)"):  # state first is refused
        split_states(np.zeros((3, 4, 3)), 3, (4, 3))


def test_three_atoms_with_nine_columns_are_three_states():
    values = np.arange(27.0).reshape(3, 9)
    np.testing.assert_array_equal(split_states(values, 3, (3, 3))[2], values[:, 6:])


def test_matrices_of_six_and_nine_numbers():  # C27
    full = np.array([[1, 6, 5], [6, 2, 4], [5, 4, 3]], dtype=float)
    for given in (np.arange(1.0, 7.0), full, full.ravel(), full[None]):
        np.testing.assert_array_equal(as_matrices(given, 1), full[None])
    states = np.stack([full, 2 * full])
    np.testing.assert_array_equal(as_matrices(states, 2), states)
    np.testing.assert_array_equal(as_matrices(states.reshape(2, 9), None), states)


def test_rounding_is_symmetrized_and_an_unsymmetric_matrix_refused():
    matrix = np.array([[1, 0.6, 0.5], [0.6001, 2, 0.4], [0.5, 0.4, 3]])
    found = as_matrices(matrix, 1)[0]
    np.testing.assert_array_equal(found, found.T)
    assert found[0, 1] == pytest.approx(0.60005)
    matrix[1, 0] = 0.7
    with pytest.raises(DataError, match="not symmetric"):
        as_matrices(matrix, 1)
    with pytest.raises(DataError, match="give 6 numbers"):
        as_matrices(np.zeros(3), 1)
