"""Does the predicted uncertainty tell the error? Correlation, scale and coverage."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from gnnforce.errors import StatisticsError

EXPECTED_COVERAGE = {1: 0.6826894921370859, 2: 0.9544997361036416}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Error against uncertainty in bins of equal count, sorted by uncertainty.

    Attributes:
        predicted: Root mean square of the predicted standard deviations of each bin.
        observed: Root mean square of the errors of each bin.
        counts: Number of values of each bin.
    """

    predicted: list[float]
    observed: list[float]
    counts: list[int]


@dataclass(frozen=True)
class Calibration:
    """How predicted standard deviations compare with errors.

    Attributes:
        n_values: Number of values compared.
        pearson: Correlation of predicted std and absolute error; ``None`` when one of
            them is the same everywhere, which leaves it undefined.
        spearman: The same of their ranks.
        scale: Factor on the std that makes the Gaussian likelihood of the errors largest.
        nll_before: Mean negative log likelihood of the errors, natural logarithm.
        nll_after: The same with the std scaled; never above ``nll_before``.
        coverage_before: Share of errors within 1 and 2 std (expected: 0.683, 0.954).
        coverage_after: The same with the std scaled.
        curve: Error against uncertainty, std not scaled.
    """

    n_values: int
    pearson: float | None
    spearman: float | None
    scale: float
    nll_before: float
    nll_after: float
    coverage_before: dict[int, float]
    coverage_after: dict[int, float]
    curve: Curve

    def apply(self, std: ArrayLike) -> Array:
        """Return calibrated standard deviations: the given ones times ``scale``."""
        return np.asarray(std, dtype=np.float64) * self.scale

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON (whose keys are text)."""
        plain = asdict(self)
        for name in ("coverage_before", "coverage_after"):
            plain[name] = {f"{k}_sigma": v for k, v in plain[name].items()}
        return plain


def calibrate(std: ArrayLike, errors: ArrayLike, n_bins: int = 10) -> Calibration:
    """Compare predicted standard deviations with the errors that were made.

    Components of forces are separate values: pass ``forces_std`` and ``forces - labels``
    of all frames. Values whose error and std are both exactly zero (an isolated atom)
    say nothing and are left out.

    Args:
        std: Predicted standard deviations, ``ddof=1``, any shape and unit.
        errors: Prediction minus label, signed or not; same shape and unit.
        n_bins: Bins of the curve; fewer when there are fewer values.

    Returns:
        The comparison.

    Raises:
        StatisticsError: For shapes that differ, fewer than two values, values that are
            not finite, negative std, errors that are all zero, or a std of zero where
            there is an error.

    Example:
        >>> result = calibrate([0.1, 0.2, 0.4], [0.2, -0.4, 0.8])
        >>> round(result.scale, 6), round(result.pearson, 6), result.coverage_before[2]
        (2.0, 1.0, 1.0)
    """
    sigma, error = _checked(std, errors)
    scale = scale_factor(sigma, error)
    scaled = sigma * scale
    return Calibration(
        n_values=len(sigma),
        pearson=correlation(sigma, error),
        spearman=correlation(rankdata(sigma), rankdata(error)),
        scale=scale,
        nll_before=gaussian_nll(sigma, error),
        nll_after=gaussian_nll(scaled, error),
        coverage_before=coverage(sigma, error),
        coverage_after=coverage(scaled, error),
        curve=error_curve(sigma, error, n_bins),
    )


def scale_factor(std: Array, errors: Array) -> float:
    r"""Return the factor on the std that minimizes the Gaussian negative log likelihood.

    .. math:: s = \sqrt{\tfrac1K \sum_k (e_k / \sigma_k)^2}
    """
    return float(np.sqrt(np.mean((errors / std) ** 2)))


def gaussian_nll(std: Array, errors: Array) -> float:
    r"""Return the mean negative log likelihood of errors with mean zero.

    .. math:: \tfrac1K \sum_k \tfrac12 (e_k/\sigma_k)^2 + \ln(\sigma_k \sqrt{2\pi})
    """
    z = errors / std
    return float(np.mean(0.5 * z**2 + np.log(std * np.sqrt(2 * np.pi))))


def coverage(std: Array, errors: Array) -> dict[int, float]:
    """Return the share of errors within 1 and 2 standard deviations."""
    return {k: float(np.mean(np.abs(errors) <= k * std)) for k in EXPECTED_COVERAGE}


def correlation(first: Array, second: Array) -> float | None:
    """Return Pearson's correlation, or ``None`` when one of the two is constant."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))


def error_curve(std: Array, errors: Array, n_bins: int = 10) -> Curve:
    """Return error against uncertainty in bins of equal count.

    Args:
        std: Shape ``(n_values,)``.
        errors: Shape ``(n_values,)``.
        n_bins: At most this many bins.

    Returns:
        The bins, from certain to uncertain.

    Raises:
        StatisticsError: For fewer than one bin.
    """
    if n_bins < 1:
        raise StatisticsError(f"n_bins must be at least 1, not {n_bins}")
    order = np.argsort(std, kind="stable")
    parts = np.array_split(order, min(n_bins, len(order)))
    return Curve(
        predicted=[float(np.sqrt(np.mean(std[part] ** 2))) for part in parts],
        observed=[float(np.sqrt(np.mean(errors[part] ** 2))) for part in parts],
        counts=[len(part) for part in parts],
    )


def _checked(std: ArrayLike, errors: ArrayLike) -> tuple[Array, Array]:
    sigma = np.asarray(std, dtype=np.float64)
    error = np.abs(np.asarray(errors, dtype=np.float64))
    if sigma.shape != error.shape:
        raise StatisticsError(
            f"std has the shape {sigma.shape} but errors have {error.shape}"
        )
    sigma, error = sigma.ravel(), error.ravel()
    if not (np.isfinite(sigma).all() and np.isfinite(error).all()):
        raise StatisticsError("std and errors must be finite numbers")
    if (sigma < 0).any():
        raise StatisticsError("standard deviations must not be negative")
    telling = (sigma > 0) | (error > 0)
    sigma, error = sigma[telling], error[telling]
    if len(sigma) < 2:
        raise StatisticsError(f"calibration needs at least 2 values, not {len(sigma)}")
    if not error.any():
        raise StatisticsError("all errors are zero; there is nothing to calibrate")
    if (sigma == 0).any():
        raise StatisticsError(
            f"{int((sigma == 0).sum())} values have an error but a standard deviation of "
            "0; are all members of the committee the same?"
        )
    return sigma, error
