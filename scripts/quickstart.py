"""Train a committee on real data, test it, and run dynamics with error bars.

Each of the three steps is one ``gnnforce`` command, printed before it runs::

    python scripts/quickstart.py [--quick] [--output DIR] [--seed N]
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gnnforce.cli.main import main as gnnforce

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data" / "acac"
THREADS = ["--threads", 1]  # see quickstart.yaml
PICTURES = {
    "parity.png": "predicted against reference energies and forces of the test file",
    "uncertainty.png": "errors against predicted uncertainties",
    "trajectory.png": "energy, temperature and force uncertainty along the dynamics",
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 minutes instead of 15")
    parser.add_argument(
        "--output", type=Path, default=Path("quickstart-results"), help="folder for files"
    )
    parser.add_argument("--seed", type=int, default=0, help="of training and dynamics")
    return parser.parse_args(argv)


def run(*words: object) -> None:
    """Print a command, run it, and stop if it fails."""
    text = [str(word) for word in words]
    print("\n$ gnnforce", " ".join(text), flush=True)
    status = gnnforce(text)
    if status:
        sys.exit(status)


def read(path: Path) -> dict:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the three steps and print where everything is."""
    options = parse(argv)
    folder, started = options.output, time.monotonic()
    model, metrics = folder / "model.pt", folder / "metrics.json"
    minutes, timestep, steps = (1.2, 1.0, 1000) if options.quick else (10.5, 0.5, 2000)

    config = ROOT / "scripts" / "quickstart.yaml"
    settings = [f"training.minutes={minutes}", f"seed={options.seed}"]
    run("train", config, *settings, "--output", folder)
    validation = read(metrics)
    run("evaluate", model, DATA / "test_MD_300K.xyz", *THREADS, "--output", folder)
    test = read(metrics)
    dynamics = ["--temperature", 300, "--timestep", timestep, "--steps", steps]
    every_step = ["--log-every", 1, "--seed", options.seed]
    start = DATA / "train_300K.xyz"
    run("md", model, start, *dynamics, *every_step, *THREADS, "--output", folder)
    seconds = round(time.monotonic() - started, 1)
    report = {"validation": validation, "test": test, "seconds": seconds}
    report["md"] = read(folder / "summary.json")
    metrics.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    summarize(report, folder)
    return 0


def summarize(report: dict, folder: Path) -> None:
    """Print the outcome in a few lines."""
    head, md = report["test"]["heads"]["energy"], report["md"]
    forces, spread = head["forces"], head["uncertainty"]["forces"]
    print(f"\nDone in {report['seconds']:.0f} s; everything is in {folder.resolve()}")
    print(
        f"  test set      energy {1000 * head['energy']['rmse']:.1f} meV a molecule, ",
        end="",
    )
    print(f"forces {1000 * forces['rmse']:.1f} meV/Å (RMSE of the committee mean)")
    print(
        f"  uncertainty   of forces: correlation with the error {spread['spearman']:.2f} ",
        end="",
    )
    print(f"(Spearman), errors are {spread['scale']:.2f} times the predicted deviation")
    print(
        f"  dynamics      {md['time_ps']:g} ps at {md['temperature_mean']:.0f} K, ",
        end="",
    )
    print(f"largest force uncertainty {1000 * md['forces_std_max']:.0f} meV/Å")
    files = {
        "model.pt": "the model",
        "train.log": "the log",
        "metrics.json": "all numbers",
    }
    for name, meaning in (files | PICTURES).items():
        print(f"  {name:<16}{meaning}")


if __name__ == "__main__":
    sys.exit(main())
