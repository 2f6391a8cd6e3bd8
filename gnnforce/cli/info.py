"""``gnnforce info``: what a model or a data file holds."""

from pathlib import Path
from typing import Annotated
from zipfile import ZipFile, is_zipfile

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import print_json, results_only

HELP = """Say what a model file or a file with structures holds.

Of a model: architecture, elements, cutoff, heads with members, energies of isolated atoms,
units, precision, parameters, training. Of data: frames, atoms, elements, which labels are
there under which key in how many frames, cells, ranges, repeated frames."""
EXAMPLE = "Examples: gnnforce info model.pt        gnnforce info data.xyz --json"

_MODEL_SUFFIXES = (".pt", ".pth", ".ckpt", ".model")


def command(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model file or a file of structures.")
    ],
    index: args.Index = ":",
    as_json: args.AsJson = False,
) -> None:
    """Describe a file."""
    if looks_like_model(path):
        from gnnforce.cli import info_model  # noqa: PLC0415

        with results_only(as_json):
            report = info_model.describe_model(path)
        print_json(report) if as_json else info_model.print_model(report)
        return
    from gnnforce.cli import info_data  # noqa: PLC0415

    with results_only(as_json):
        report = info_data.describe_data(path, index)
    print_json(report) if as_json else info_data.print_data(report)


def looks_like_model(path: Path) -> bool:
    """Tell whether a file is to be read as a model: by its ending or its content.

    Args:
        path: The file, which need not exist.

    Returns:
        True for the endings of torch files and for what ``torch.save`` writes.
    """
    if path.suffix in _MODEL_SUFFIXES:
        return True
    if not is_zipfile(path):
        return False
    with ZipFile(path) as archive:
        return any(name.endswith("data.pkl") for name in archive.namelist())
