"""The pictures the commands leave: parity, error against uncertainty, trajectory.

Every function returns a :class:`matplotlib.figure.Figure` made without pyplot, so that no
window opens and no global setting changes. matplotlib is imported when a plot is made.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnforce.cli.comparison import Array, Comparison
from gnnforce.cli.panels import (
    energy_panel,
    parity_panel,
    std_panel,
    temperature_panel,
    title,
    uncertainty_panel,
)
from gnnforce.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def require_matplotlib() -> None:
    """Check that plots can be made, before the work whose plots are wanted.

    Raises:
        UserError: Says how to install matplotlib.
    """
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError(
            "plots need matplotlib, which is not installed: pip install matplotlib, "
            "or pass --no-plots"
        ) from error


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG and return its path."""
    with styled():
        figure.savefig(path, dpi=150)
    return path


def parity(rows: Sequence[Sequence[Comparison]]) -> "Figure":
    """Draw predicted against reference values, one row of panels for each head.

    Args:
        rows: For each head the quantities to compare, one panel each.

    Returns:
        The figure; each panel states its root mean square and mean absolute error.

    Raises:
        UserError: When there is nothing to compare.
    """
    with styled():
        figure, axes = _panels(rows)
        for axis, comparison in axes:
            parity_panel(axis, comparison)
    return figure


def error_against_uncertainty(rows: Sequence[Sequence[Comparison]]) -> "Figure":
    """Draw actual errors against predicted standard deviations, on logarithmic axes.

    Each panel shows every value as a cloud, root mean squares of both in bins of equally
    many values, and the line where the two are equal.

    Args:
        rows: For each head the quantities; those without ``std`` are left out.

    Returns:
        The figure.

    Raises:
        UserError: When no quantity has a predicted standard deviation.
    """
    committees = [[c for c in row if c.std is not None] for row in rows]
    with styled():
        figure, axes = _panels([row for row in committees if row])
        for axis, comparison in axes:
            uncertainty_panel(axis, comparison)
    return figure


def trajectory(
    table: Mapping[str, Array],
    *,
    target_temperature: float | None = None,
    max_force_std: float | None = None,
) -> "Figure":
    """Draw energy, temperature and force uncertainty along a molecular dynamics run.

    Args:
        table: Columns of ``md.csv``: ``time_fs`` (fs), ``epot`` and ``etot`` (eV),
            ``temperature`` (K); ``forces_std_max`` and ``forces_std_mean`` (eV/Angstrom)
            for committees.
        target_temperature: Of the thermostat in K, drawn as a line.
        max_force_std: Limit of the force uncertainty in eV/Angstrom, drawn as a line.

    Returns:
        The figure: three panels, two without a committee.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415

    has_std = "forces_std_max" in table
    n_rows = 3 if has_std else 2
    time = table["time_fs"] / 1000.0
    with styled():
        figure = Figure(figsize=(8.0, 2.5 * n_rows + 0.4), layout="constrained")
        axes = figure.subplots(n_rows, 1, sharex=True)
        energy_panel(axes[0], time, table)
        temperature_panel(axes[1], time, table["temperature"], target_temperature)
        if has_std:
            std_panel(axes[2], time, table, max_force_std)
        axes[-1].set_xlabel("time (ps)")
        if time[-1] > time[0]:
            axes[-1].set_xlim(time[0], time[-1])
        figure.align_ylabels(axes)
    return figure


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the look that all pictures share, without changing it for others."""
    import matplotlib as mpl  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        yield


def _panels(
    rows: Sequence[Sequence[Comparison]],
) -> tuple["Figure", list[tuple["Axes", Comparison]]]:
    """Return a figure with one panel for each comparison."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    if not any(len(row) for row in rows):
        raise UserError("there is nothing to plot: no quantity has both values")
    n_columns = max(len(row) for row in rows)
    size = (5.2 * n_columns, 4.6 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), n_columns, squeeze=False)
    filled = []
    for axes, row in zip(grid, rows, strict=True):
        for axis in axes[len(row) :]:
            axis.set_axis_off()
        filled += list(zip(axes, row, strict=False))
    for axis, comparison in filled:
        axis.set_title(title(comparison, n_heads=len(rows)))
    return figure, filled
