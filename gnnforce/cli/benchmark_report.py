"""Table, JSON and plot of ``gnnforce benchmark forces``."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnforce.cli import plots
from gnnforce.cli.console import digits, print_pairs, print_table
from gnnforce.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gnnforce.testing.benchmark import Comparison
    from gnnforce.testing.benchmark_plan import Plan
    from gnnforce.testing.benchmark_rows import Row
    from gnnforce.testing.benchmark_setup import Setup

COLUMNS = ("N", "strategy", "ms", "quartiles", "R(N)", "gain", "MiB", "MiB ratio")
SIZES = {"n_atoms": "atoms", "n_edges": "edges", "n_graphs": "structures"}


def check_files(json: Path | None, plot: Path | None) -> None:
    """Check that results can be written, before the work.

    Raises:
        UserError: For a folder that does not exist, or a plot that is no PNG.
    """
    for path in (json, plot):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"there is no folder {path.parent} for {path.name}; make it")
        if path is not None and path.is_dir():
            raise UserError(f"{path} is a folder; name a file")
    if plot is not None:
        if plot.suffix.lower() != ".png":
            raise UserError(f"--plot writes a PNG: name it {plot.with_suffix('.png')}")
        if find_spec("matplotlib") is None:
            raise UserError(
                "--plot needs matplotlib, which is not installed: pip install matplotlib, "
                "or leave --plot out"
            )


def content(
    machine: Mapping[str, Any],
    plan: "Plan",
    setups: Sequence["Setup"],
    comparisons: Sequence["Comparison"],
) -> dict[str, Any]:
    """Return everything that is written as JSON."""
    return {
        "kind": "training step" if plan.training else "energies and forces",
        "machine": dict(machine),
        "settings": {
            "members": plan.members,
            "strategies": plan.strategies,
            "repeats": plan.repeats,
            "max_seconds": plan.max_seconds,
            "max_mib": plan.max_mib,
            "memory": plan.memory,
        },
        "workloads": [
            comparison.plain() | {"setup": vars(setup)}
            for setup, comparison in zip(setups, comparisons, strict=True)
        ],
        "agrees": not any(comparison.wrong for comparison in comparisons),
    }


def print_all(
    machine: Mapping[str, Any], comparisons: Sequence["Comparison"], *, training: bool
) -> None:
    """Print the machine, a table a workload, and why candidates were left out."""
    print_pairs(
        {
            "processor": machine["processor"],
            "device": machine["device"],
            "threads": f"{machine['threads']} of {machine['cpus']} CPUs",
            "torch": machine["versions"]["torch"],
            "measured": "training steps" if training else "energies and forces",
        }
    )
    last = (
        ("gradients from loop", "float64")
        if training
        else ("forces from loop", "float64")
    )
    for one in comparisons:
        sizes = ", ".join(f"{one.sizes[key]:,} {word}" for key, word in SIZES.items())
        print(f"\n{one.workload}: {sizes}, {one.dtype}\n")
        print_table(
            [*COLUMNS, *last], [cells(row, training=training) for row in one.rows]
        )
        left_out = [row for row in one.rows if row.status != "measured"]
        for row in left_out:
            print(f"{row.strategy}, N={row.n_outputs}: {row.status}: {row.reason}")
    print(
        "\nR(N): time over that of the fastest strategy for one output. gain: time of the "
        "loop with the\nsame N over this. MiB: peak memory of a call without inputs and "
        "weights; its ratio is to N=1 of\nthe same strategy. Last columns: largest "
        "difference from the loop in the same precision and in\nfloat64, relative."
    )


def cells(row: "Row", *, training: bool) -> list[str]:
    """Return one line of the table."""
    name = row.strategy
    if row.strategy == "auto" and row.used:
        name = f"auto ({row.used})"
    if row.status != "measured":
        return [str(row.n_outputs), name, row.status, *["-"] * 7]
    what = "gradients" if training else "forces_relative"
    apart = [row.agreement.get(f"{what}_from_{k}") for k in ("loop", "float64_loop")]
    return [
        str(row.n_outputs),
        name,
        digits(row.median_ms),
        f"{digits(row.lower_quartile_ms)}-{digits(row.upper_quartile_ms)}",
        digits(row.ratio_to_one),
        digits(row.gain_over_loop),
        digits(row.peak_mib),
        digits(row.peak_ratio_to_one),
        *("-" if one is None else f"{one:.1e}" for one in apart),
    ]


def draw(comparisons: Sequence["Comparison"], path: Path, *, training: bool) -> Path:
    """Draw time against the number of outputs, one panel a workload; write a PNG."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    with plots.styled():
        size = (5.0 * len(comparisons), 4.8)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(comparisons), squeeze=False)[0]
        for axis, one in zip(panels, comparisons, strict=True):
            time_panel(axis, one)
        panels[0].set_ylabel("training step (ms)" if training else "time (ms)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=max(3, len(labels) // 2)
        )
    return plots.save(figure, path)


def time_panel(axis: "Axes", comparison: "Comparison") -> None:
    """Draw medians with quartiles on logarithmic axes, one line a strategy."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    names = list(dict.fromkeys(row.strategy for row in comparison.rows))
    for number, name in enumerate(names):
        rows = [r for r in comparison.rows if r.strategy == name and r.median_ms]
        if not rows:
            continue
        n = [row.n_outputs for row in rows]
        style = "--" if name == "auto" else "-"
        color = "black" if name == "auto" else f"C{number}"
        axis.plot(
            n,
            [r.median_ms or 0 for r in rows],
            style,
            marker="o",
            markersize=4,
            color=color,
            label=name,
        )
        axis.fill_between(
            n,
            [r.lower_quartile_ms or 0 for r in rows],
            [r.upper_quartile_ms or 0 for r in rows],
            color=color,
            alpha=0.15,
        )
    ticks = sorted({row.n_outputs for row in comparison.rows})
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(ticks, [str(n) for n in ticks])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("outputs N")
    axis.set_title(f"{comparison.workload}: {comparison.sizes['n_atoms']:,} atoms")
