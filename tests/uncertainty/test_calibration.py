import json
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm, pearsonr, spearmanr

from gnnforce.errors import StatisticsError
from gnnforce.uncertainty.calibration import (
    EXPECTED_COVERAGE,
    calibrate,
    correlation,
    error_curve,
    gaussian_nll,
    scale_factor,
)


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    std = rng.uniform(0.05, 0.5, 20_000)
    return std, rng.normal(0.0, 3.0 * std)  # too confident by a factor of three


def test_known_miscalibration_is_found(sample):
    std, errors = sample
    result = calibrate(std, errors)
    assert result.scale == pytest.approx(3.0, rel=0.02)
    for k, share in EXPECTED_COVERAGE.items():
        assert share == pytest.approx(norm.cdf(k) - norm.cdf(-k), abs=1e-12)
        assert result.coverage_after[k] == pytest.approx(share, abs=0.01)
        assert result.coverage_before[k] == pytest.approx(
            norm.cdf(k / 3) - norm.cdf(-k / 3), abs=0.01
        )
    assert result.nll_after < result.nll_before
    np.testing.assert_allclose(result.apply(std), std * result.scale)


def test_numbers_against_scipy(sample):
    std, errors = sample
    result = calibrate(std, errors)
    assert result.pearson == pytest.approx(pearsonr(std, abs(errors)).statistic)
    assert result.spearman == pytest.approx(spearmanr(std, abs(errors)).statistic)
    nll = -norm.logpdf(errors, scale=std).mean()
    assert result.nll_before == pytest.approx(nll)
    best = minimize_scalar(
        lambda s: gaussian_nll(s * std, errors), bounds=(0.5, 10), method="bounded"
    )
    assert result.scale == pytest.approx(best.x, rel=1e-4)
    assert result.nll_after == pytest.approx(best.fun)


def test_ranks_share_ties():
    std, errors = [0.1, 0.1, 0.2, 0.3], [0.3, 0.1, 0.1, 0.9]
    expected = spearmanr(std, errors).statistic
    assert calibrate(std, errors).spearman == pytest.approx(expected)


def test_sign_and_shape_of_errors_do_not_matter(sample):
    std, errors = sample
    flat = calibrate(std, errors)
    boxed = calibrate(std.reshape(100, 200), -errors.reshape(100, 200))
    assert boxed == flat


def test_curve_has_equal_bins_in_order(sample):
    std, errors = sample
    curve = calibrate(std, errors, n_bins=7).curve
    assert sum(curve.counts) == len(std)
    assert max(curve.counts) - min(curve.counts) <= 1
    assert curve.predicted == sorted(curve.predicted)
    np.testing.assert_allclose(curve.observed, 3 * np.array(curve.predicted), rtol=0.06)


def test_curve_by_hand():
    curve = error_curve(np.array([3.0, 1.0, 1.0]), np.array([6.0, 3.0, 4.0]), 2)
    assert curve.counts == [2, 1]
    assert curve.predicted == pytest.approx([1.0, 3.0])
    assert curve.observed == pytest.approx([math.sqrt(12.5), 6.0])
    assert error_curve(np.ones(3), np.ones(3), 10).counts == [1, 1, 1]
    with pytest.raises(StatisticsError, match="n_bins"):
        error_curve(np.ones(3), np.ones(3), 0)


def test_isolated_atoms_are_left_out():
    std, errors = [0.1, 0.2, 0.4], [0.2, 0.4, 0.7]
    padded = calibrate([0.0, *std, 0.0], [0.0, *errors, 0.0])
    assert padded == calibrate(std, errors)
    assert padded.n_values == 3


def test_constant_input_has_no_correlation():
    result = calibrate([0.1, 0.1, 0.1], [0.2, 0.1, 0.3])
    assert result.pearson is None
    assert result.spearman is None
    assert correlation(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == pytest.approx(-1)


def test_is_plain_json(sample):
    plain = calibrate(*sample).as_dict()
    back = json.loads(json.dumps(plain, allow_nan=False))
    assert back == plain
    assert set(back["coverage_after"]) == {"1_sigma", "2_sigma"}


def test_scale_in_closed_form():
    assert scale_factor(np.array([1.0, 2.0]), np.array([3.0, 2.0])) == pytest.approx(
        math.sqrt(5)
    )


@pytest.mark.parametrize(
    ("std", "errors", "word"),
    [
        ([0.1, 0.2], [0.1], "shape"),
        ([0.1], [0.1], "at least 2"),
        ([], [], "at least 2"),
        ([0.1, np.nan], [0.1, 0.1], "finite"),
        ([0.1, 0.2], [0.1, np.inf], "finite"),
        ([0.1, -0.2], [0.1, 0.1], "negative"),
        ([0.0, 0.1], [0.5, 0.1], "the same"),
        ([0.1, 0.2], [0.0, 0.0], "all errors are zero"),
    ],
)
def test_refusals(std, errors, word):
    with pytest.raises(StatisticsError, match=word):
        calibrate(std, errors)
