"""``gnnforce train``: a model from a configuration file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import print_errors, print_json, print_pairs, results_only

if TYPE_CHECKING:
    from gnnforce.training.fit import TrainingResult

HELP = """Train a model from a YAML file; everything in it is checked before the start.

Words like training.epochs=50 replace values of the file; paths in them are relative to
the file, like those in it. The folder 'output' of the configuration gets model.pt,
config.yaml (resolved), metrics.csv, metrics.json, train.log and checkpoints."""
EXAMPLE = "Example: gnnforce train config.yaml training.minutes=10 -o runs/first"


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A YAML file with the configuration.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values that replace the file's."),
    ] = None,
    *,
    output: args.Output = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the last checkpoint in the folder."),
    ] = False,
    progress: args.ShowProgress = None,
    as_json: args.AsJson = False,
) -> None:
    """Train a model."""
    with results_only(as_json):
        from gnnforce.training.config import load_config  # noqa: PLC0415
        from gnnforce.training.fit import train  # noqa: PLC0415

        words = list(overrides or [])
        if output is not None:
            # values are YAML, which gives a folder called 'run #1' another meaning
            folder = json.dumps(str(output.absolute()), ensure_ascii=False)
            words.append(f"output={folder}")
        settings = load_config(config, words)
        # the bar itself appears on terminals only; without one there are lines
        result = train(settings, resume=resume, progress=progress is not False)
    report = summarize(result)
    if as_json:
        print_json(report)
    else:
        print_report(report)


def print_report(report: dict[str, Any]) -> None:
    """Print where the model is and how it does, for people."""
    metrics = report["metrics"]
    print_pairs(
        {
            "model": report["model"],
            "ended": f"{metrics['ending']} after {metrics['epochs']} epochs, best "
            f"{metrics['best_epoch']}, {metrics['seconds']:.0f} s",
            "other files": ", ".join(p.name for p in report["files"]),
        }
    )
    for part in ("validation", "test"):
        if metrics.get(part):
            print(f"\n{part} errors")
            print_errors(metrics[part])


def summarize(result: "TrainingResult") -> dict[str, Any]:
    """Put a training into plain values: where things are, and the metrics."""
    return {
        "model": result.model_path,
        "folder": result.folder,
        "metrics": result.metrics,
        "files": sorted(p for p in Path(result.folder).iterdir() if p.is_file()),
    }
