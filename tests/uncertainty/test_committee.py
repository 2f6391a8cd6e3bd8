import numpy as np
import pytest
import torch

from gnnforce.errors import StatisticsError
from gnnforce.uncertainty.committee import (
    atom_uncertainty,
    committee_mean,
    committee_std,
)


def test_ddof_is_one():
    members = np.random.default_rng(0).normal(size=(5, 7, 3))
    mean = members.sum(axis=0) / 5
    expected = np.sqrt(((members - mean) ** 2).sum(axis=0) / 4)
    np.testing.assert_allclose(committee_mean(members), mean)
    np.testing.assert_allclose(committee_std(members), expected)
    np.testing.assert_allclose(
        committee_std(members), torch.from_numpy(members).std(dim=0).numpy()
    )


def test_two_members_in_closed_form():
    assert committee_std([1.0, 4.0]) == pytest.approx(3 / np.sqrt(2))


def test_one_member_has_a_mean_but_no_spread():
    assert committee_mean([[2.0, 3.0]]).tolist() == [2.0, 3.0]
    with pytest.raises(StatisticsError, match="at least 2"):
        committee_std([[2.0, 3.0]])
    for nothing in ([], 3.0):
        with pytest.raises(StatisticsError, match="there are 0"):
            committee_mean(nothing)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_is_refused(bad):
    with pytest.raises(StatisticsError, match="finite"):
        committee_std([[1.0, bad], [1.0, 2.0]])


def test_equal_members_have_zero_spread():
    assert committee_std(np.full((4, 2), 1.25)).tolist() == [0.0, 0.0]


def test_atom_uncertainty():
    assert atom_uncertainty([[3.0, 0.0, 4.0]]) == pytest.approx(5 / np.sqrt(3))
    assert atom_uncertainty(np.ones((2, 5, 3))).shape == (2, 5)
    with pytest.raises(StatisticsError, match="axis of 3"):
        atom_uncertainty(np.ones((3, 2)))
