"""The panels of the plots, and the pieces they are made of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnforce.cli.comparison import Array, Comparison
from gnnforce.cli.smoothing import running_mean, running_mean_span
from gnnforce.errors import StatisticsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_BLUE, _ORANGE, _GRAY = "#2a6fbb", "#d9691a", "#555555"
_MANY = 1500  # points from which a cloud is drawn by density


def title(comparison: Comparison, *, n_heads: int) -> str:
    """Name the quantity, and the head where there are several."""
    same = comparison.head == comparison.quantity
    if same or n_heads == 1:
        return comparison.quantity
    return f"{comparison.head}: {comparison.quantity}"


def parity_panel(axis: "Axes", comparison: Comparison) -> None:
    """Draw predicted against reference values with their errors."""
    x, y = np.ravel(comparison.reference), np.ravel(comparison.predicted)
    low, high = _padded_range(np.concatenate([x, y]))
    axis.plot([low, high], [low, high], color=_GRAY, linewidth=1, zorder=3)
    _cloud(axis, x, y, (low, high, low, high), logarithmic=False)
    axis.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    unit = comparison.unit
    centered = comparison.centered
    axis.set_xlabel(f"reference ({unit}{', relative to its mean' if centered else ''})")
    axis.set_ylabel(f"predicted ({unit}{', relative to the same' if centered else ''})")
    axis.locator_params(nbins=6)
    rmse = float(np.sqrt(np.mean(comparison.error**2)))
    mae = float(np.mean(np.abs(comparison.error)))
    milli = f"m{unit}"
    text = f"RMSE {_three(1000 * rmse)} {milli}\nMAE {_three(1000 * mae)} {milli}"
    _note(axis, f"{text}\n{comparison.note}".strip(), corner="upper left")


def uncertainty_panel(axis: "Axes", comparison: Comparison) -> None:
    """Draw errors against predicted standard deviations, both logarithmic."""
    from gnnforce.uncertainty.calibration import error_curve  # noqa: PLC0415

    assert comparison.std is not None
    std, error = np.ravel(comparison.std), np.abs(comparison.error)
    seen = (std > 0) & (error > 0)
    std, error = std[seen], error[seen]
    if not len(std):
        _note(axis, "no value with an error and an uncertainty above 0", "upper left")
        return
    limits = _logarithmic_limits(std, error)
    axis.set(xscale="log", yscale="log", xlim=limits[:2], ylim=limits[2:])
    _cloud(axis, std, error, limits, logarithmic=True)
    low, high = min(limits[::2]), max(limits[1::2])
    axis.plot([low, high], [low, high], "--", color=_GRAY, linewidth=1.2, label="equal")
    curve = error_curve(std, error, n_bins=max(1, min(12, len(std) // 20)))
    style: dict[str, Any] = {
        "color": _ORANGE,
        "markeredgecolor": "white",
        "markersize": 7,
        "zorder": 4,
    }
    axis.plot(curve.predicted, curve.observed, "o-", label="RMS error in bins", **style)
    axis.set_xlabel(f"predicted standard deviation ({comparison.unit})")
    axis.set_ylabel(f"absolute error ({comparison.unit})")
    for side in (axis.xaxis, axis.yaxis):
        _decimal_ticks(side)
    legend = axis.legend(loc="lower right", frameon=True, facecolor="white", fontsize=10)
    legend.get_frame().set(edgecolor="none", alpha=0.85)
    _note(axis, _trust(std, error), corner="upper left")


def energy_panel(axis: "Axes", time: Array, table: Mapping[str, Array]) -> None:
    """Draw total and potential energy, relative to the potential one at the start."""
    start = table["epot"][0]
    axis.plot(time, table["etot"] - start, color=_ORANGE, label="total")
    axis.plot(time, table["epot"] - start, color=_BLUE, label="potential")
    axis.set_ylabel("energy relative to\nthe start (eV)")
    _legend_above(axis, 2)


def temperature_panel(
    axis: "Axes", time: Array, temperature: Array, target: float | None
) -> None:
    """Draw the temperature, its running mean and the target."""
    axis.plot(time, temperature, color=_BLUE, alpha=0.45, linewidth=1, label="instant")
    width = running_mean_span(len(time))
    if width > 1:
        smooth = running_mean(temperature, width)
        axis.plot(time, smooth, color=_BLUE, linewidth=2, label="running mean")
    if target is not None:
        axis.axhline(target, color=_GRAY, linestyle="--", label=f"target {target:g} K")
    axis.set_ylabel("temperature (K)")
    _legend_above(axis, 3)


def std_panel(
    axis: "Axes", time: Array, table: Mapping[str, Array], limit: float | None
) -> None:
    """Draw the largest and the mean force uncertainty, and the limit."""
    axis.plot(time, table["forces_std_max"], color=_ORANGE, linewidth=1, label="largest")
    axis.plot(time, table["forces_std_mean"], color=_BLUE, label="mean")
    if limit is not None:
        axis.axhline(limit, color=_GRAY, linestyle="--", label=f"limit {limit:g} eV/Å")
    axis.set_ylabel("force uncertainty\n(eV/Å)")
    axis.set_ylim(bottom=0.0)
    _legend_above(axis, 3)


def _trust(std: Array, error: Array) -> str:
    """Say how well one tells the other; nothing where that is not defined."""
    from gnnforce.uncertainty.calibration import calibrate  # noqa: PLC0415

    try:
        found = calibrate(std, error)
    except StatisticsError:
        return ""
    rank = "-" if found.spearman is None else f"{found.spearman:.2f}"
    return f"Spearman {rank}\nscale {_three(found.scale)}"


# Pieces -------------------------------------------------------------------------------


def _cloud(
    axis: "Axes",
    x: Array,
    y: Array,
    limits: tuple[float, float, float, float],
    *,
    logarithmic: bool,
) -> None:
    """Draw points, or how many there are where they would cover each other."""
    if len(x) < _MANY:
        axis.scatter(x, y, s=16, color=_BLUE, alpha=0.5, linewidths=0, zorder=2)
        return
    scale: dict[str, Any] = {"xscale": "log", "yscale": "log"} if logarithmic else {}
    low, high, bottom, top = np.log10(limits) if logarithmic else limits
    mesh = axis.hexbin(
        x,
        y,
        gridsize=70,
        bins="log",
        mincnt=1,
        cmap="viridis",
        extent=(low, high, bottom, top),
        **scale,
    )
    mesh.set_zorder(2)
    bar = axis.figure.colorbar(mesh, ax=axis, shrink=0.8, pad=0.02)
    bar.set_label("values per cell", fontsize=9)
    bar.ax.tick_params(labelsize=9)


def _logarithmic_limits(std: Array, error: Array) -> tuple[float, float, float, float]:
    """Return limits of both axes; the smallest errors, which are chance, are cut off."""
    low, high = float(std.min()) / 1.3, float(std.max()) * 1.3
    bottom = min(low, float(np.quantile(error, 0.02)))
    return low, high, bottom, max(high, float(error.max()) * 1.3)


def _decimal_ticks(side: "Axis") -> None:
    """Label a logarithmic axis with 0.01, 0.02, 0.05 where it spans few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    low, high = side.get_view_interval()
    short = np.log10(high / low) < 1.7
    side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    side.set_minor_formatter(NullFormatter())


def _padded_range(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    pad = 0.05 * (high - low) or 0.5
    return low - pad, high + pad


def _note(axis: "Axes", text: str, corner: str) -> None:
    from matplotlib.offsetbox import AnchoredText  # noqa: PLC0415

    if not text:
        return
    box = AnchoredText(text, loc=corner, prop={"size": 10}, frameon=True, pad=0.35)
    box.patch.set(facecolor="white", edgecolor="none", alpha=0.85)
    box.set_zorder(5)
    axis.add_artist(box)


def _legend_above(axis: "Axes", n_columns: int) -> None:
    place: dict[str, Any] = {
        "loc": "lower right",
        "bbox_to_anchor": (1.0, 0.97),
        "borderaxespad": 0.1,
    }
    axis.legend(ncols=n_columns, fontsize=9.5, **place)


def _three(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    digits = 3 - len(f"{abs(value):.0f}") if abs(value) >= 1 else 3
    return f"{value:.{max(digits, 0)}f}"
