"""Running means for the plots."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def running_mean_span(n_values: int) -> int:
    """Return how many values a running mean of a series spans: a twentieth, odd.

    Example:
        >>> running_mean_span(200), running_mean_span(10)
        (11, 1)
    """
    span = n_values // 20
    return span + 1 - span % 2 if span > 1 else 1


def running_mean(values: Array, span: int) -> Array:
    """Return means over windows of ``span`` values, shorter ones at both ends.

    Args:
        values: A series, shape ``(n,)``.
        span: Odd number of values.

    Returns:
        The means, shape ``(n,)``.

    Example:
        >>> running_mean(np.array([0.0, 3.0, 6.0, 3.0]), 3).tolist()
        [1.5, 3.0, 4.0, 4.5]
    """
    window = np.ones(span)
    half = span // 2
    sums = np.convolve(values, window)[half : half + len(values)]
    counts = np.convolve(np.ones(len(values)), window)[half : half + len(values)]
    return np.asarray(sums / counts, dtype=np.float64)
