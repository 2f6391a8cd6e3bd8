"""Running means keep constants and averages."""

import numpy as np

from gnnforce.cli.smoothing import running_mean, running_mean_span


def test_a_constant_stays_at_both_ends():
    np.testing.assert_allclose(running_mean(np.full(30, 7.0), 9), 7.0, rtol=1e-14)


def test_a_line_stays_away_from_the_ends():
    values = np.arange(30.0)
    np.testing.assert_allclose(running_mean(values, 9)[4:-4], values[4:-4], rtol=1e-14)


def test_it_smooths():
    values = np.random.default_rng(0).normal(size=1000)
    assert running_mean(values, 25).std() < 0.3 * values.std()


def test_the_span_is_odd_and_short():
    spans = [running_mean_span(n) for n in range(1, 500)]
    assert all(span % 2 == 1 for span in spans)
    assert all(span <= n / 20 + 1 for n, span in enumerate(spans, start=1))
