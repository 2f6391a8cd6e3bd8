"""One line of a comparison of strategies, and the ratios between lines."""

from dataclasses import dataclass, field
from typing import Any

from gnnforce.testing.timing import spread


@dataclass
class Row:
    """What was found for one number of outputs and one strategy.

    Attributes:
        workload: Name of the workload.
        n_outputs: Number of outputs N.
        strategy: What was asked for.
        status: ``measured``, ``refused`` (by the strategy), ``too slow``, ``too large``
            or ``failed``.
        reason: Why there are no numbers.
        used: The strategy that was taken, which ``auto`` chooses.
        choice: Passes through the backbone, pieces, and why this strategy was taken.
        median_ms: Time of a call, with quartiles.
        lower_quartile_ms: See ``median_ms``.
        upper_quartile_ms: See ``median_ms``.
        n_times: Number of calls timed.
        first_seconds: Of the first, single call.
        ratio_to_one: ``R(N)``: time over that of the fastest strategy for one output.
        gain_over_loop: Time of the loop with the same N over this time.
        peak_mib: Peak memory of a call in MiB, without inputs and weights.
        peak_method: How it was read.
        peak_ratio_to_one: Peak memory over that of the same strategy for one output.
        agreement: Differences from the loop; see ``benchmark_references``.
        agrees: Whether they are within the tolerance; None when not compared.
    """

    workload: str
    n_outputs: int
    strategy: str
    status: str = "measured"
    reason: str = ""
    used: str = ""
    choice: dict[str, Any] = field(default_factory=dict)
    median_ms: float | None = None
    lower_quartile_ms: float | None = None
    upper_quartile_ms: float | None = None
    n_times: int = 0
    first_seconds: float | None = None
    ratio_to_one: float | None = None
    gain_over_loop: float | None = None
    peak_mib: float | None = None
    peak_method: str = ""
    peak_ratio_to_one: float | None = None
    agreement: dict[str, Any] = field(default_factory=dict)
    agrees: bool | None = None

    def set_times(self, seconds: list[float]) -> None:
        """Fill in the times, given in seconds."""
        found = spread(seconds)
        self.median_ms = 1e3 * found.median
        self.lower_quartile_ms = 1e3 * found.lower
        self.upper_quartile_ms = 1e3 * found.upper
        self.n_times = len(seconds)


def fill_ratios(rows: list[Row]) -> None:
    """Fill in ratios between the rows of one workload.

    Only strategies whose numbers agree can be the fastest for one output.

    Example:
        >>> rows = [Row("w", 1, "loop"), Row("w", 4, "loop"), Row("w", 4, "chain")]
        >>> for row, ms in zip(rows, (2.0, 8.0, 4.0)):
        ...     row.median_ms = ms
        >>> fill_ratios(rows)
        >>> rows[2].ratio_to_one, rows[2].gain_over_loop
        (2.0, 2.0)
    """
    ones = [row for row in rows if row.n_outputs == 1]
    single = [r.median_ms for r in ones if r.median_ms and r.agrees is not False]
    loops = {row.n_outputs: row.median_ms for row in rows if row.strategy == "loop"}
    peaks = {row.strategy: row.peak_mib for row in ones}
    for row in rows:
        if row.median_ms:
            loop = loops.get(row.n_outputs)
            row.ratio_to_one = row.median_ms / min(single) if single else None
            row.gain_over_loop = loop / row.median_ms if loop else None
        peak = peaks.get(row.strategy)
        if row.peak_mib is not None and peak:
            row.peak_ratio_to_one = row.peak_mib / peak
