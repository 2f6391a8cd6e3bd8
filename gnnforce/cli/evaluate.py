"""``gnnforce evaluate``: how wrong a model is on labeled data, and whether it knows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import (
    digits,
    note,
    print_errors,
    print_json,
    print_pairs,
    print_table,
    results_only,
    write_json,
)

if TYPE_CHECKING:
    from gnnforce.training.evaluate import Evaluation

HELP = """Compare predictions with the labels of a file.

Prints the errors of the mean of each head's members and, for a committee, how well its
predicted standard deviation tells the error. With --output the folder gets metrics.json,
parity.png and, for a committee, uncertainty.png."""
EXAMPLE = "Example: gnnforce evaluate model.pt test.xyz -o results"


def command(  # noqa: PLR0913  (options of the command line, all by name)
    model: args.Model,
    data: args.Structures,
    *,
    head: args.HeadNames = None,
    energy_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Key of energies; that of the training if none."
        ),
    ] = None,
    forces_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key of forces.")
    ] = None,
    stress_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key of stresses.")
    ] = None,
    energy_unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="Of energies and forces in the file."),
    ] = None,
    allow_nan: Annotated[
        bool,
        typer.Option(
            "--allow-nan",
            help="A nan label means 'not known'; as in training if not said.",
        ),
    ] = False,
    output: args.Output = None,
    index: args.Index = ":",
    batch_size: args.BatchSize = 16,
    device: args.Device = "cpu",
    dtype: args.Dtype = None,
    threads: args.Threads = None,
    plots: args.Plots = True,
    as_json: args.AsJson = False,
) -> None:
    """Test a model on labeled frames."""
    with results_only(as_json):
        from gnnforce.calculators.threads import check_threads, thread_limit  # noqa: PLC0415
        from gnnforce.cli.evaluating import evaluate_file  # noqa: PLC0415
        from gnnforce.cli.models import open_model, pick_heads  # noqa: PLC0415

        if output is not None:
            _make_folder(output, plots=plots)
        force_field = open_model(model, device, dtype)
        heads = pick_heads(force_field, head)
        keys = {"energy": energy_key, "forces": forces_key, "stress": stress_key}
        keys |= {"energy_unit": energy_unit}
        named = {name: key for name, key in keys.items() if key is not None}
        with thread_limit(check_threads(threads)):
            result = evaluate_file(
                force_field,
                data,
                heads,
                index=index,
                keys=named,
                allow_nan=allow_nan,
                batch_size=batch_size,
            )
        report = {"model": model, **result.report}
        if output is not None:
            report["files"] = _write(report, result.evaluation, output, plots=plots)
    if as_json:
        print_json(report)
    else:
        for line in result.lines:
            note(line)
        print_report(report)


def print_report(report: dict[str, Any]) -> None:
    """Print errors and calibration for people."""
    print_pairs({"frames": report["frames"], "atoms": report["atoms"]})
    print()
    print_errors(report["heads"])
    trust = [
        [head, name, *_trust_cells(found)]
        for head, entries in report["heads"].items()
        for name, found in entries.get("uncertainty", {}).items()
    ]
    if trust:
        print("\npredicted standard deviation against error")
        names = ["Pearson", "Spearman", "scale", "within 1 std", "within 2 std"]
        print_table(["head", "quantity", *names], trust)
        print("(scale: what the std must be multiplied by; expected within: 68 %, 95 %)")
    for path in report.get("files", []):
        print(f"written {path}")


def _trust_cells(found: dict[str, Any]) -> list[str]:
    if "undefined" in found:
        return ["-"] * 5
    shares = (found["coverage_before"][f"{k}_sigma"] for k in (1, 2))
    correlations = [
        "-" if found[k] is None else f"{found[k]:.2f}" for k in ("pearson", "spearman")
    ]
    return [*correlations, digits(found["scale"]), *(f"{100 * s:.0f} %" for s in shares)]


def _make_folder(folder: Path, *, plots: bool) -> None:
    from gnnforce.cli.plots import require_matplotlib  # noqa: PLC0415

    if plots:
        require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)


def _write(
    report: dict[str, Any],
    evaluation: "Evaluation",
    folder: Path,
    *,
    plots: bool,
) -> list[Path]:
    """Write the numbers and the pictures, and return the paths."""
    from gnnforce.cli import plots as pictures  # noqa: PLC0415
    from gnnforce.cli.comparison import comparisons  # noqa: PLC0415

    written = [write_json(report, folder / "metrics.json")]
    if plots:
        rows = comparisons(evaluation, list(report["heads"]))
        figure = pictures.parity(rows)
        written.append(pictures.save(figure, folder / "parity.png"))
        if any(one.std is not None for row in rows for one in row):
            figure = pictures.error_against_uncertainty(rows)
            written.append(pictures.save(figure, folder / "uncertainty.png"))
    return written
