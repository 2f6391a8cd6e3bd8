"""The command line: which commands there are, and how errors reach the user.

Commands import what they need when they run, so that ``gnnforce --help`` is quick.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from platform import python_version
from typing import Annotated, Any, TextIO

import typer

from gnnforce.cli import benchmark, evaluate, info, md, predict, train, vibrations
from gnnforce.errors import UserError

# typer exports BadParameter, but not the base of everything wrong on a command line
_UsageProblem: Any = typer.BadParameter.__mro__[2]
_MISTAKE = 2  # exit status of whatever the user can mend
_INTERRUPTED = 130

app = typer.Typer(
    name="gnnforce",
    help="Many force fields for about the price of one: train committees, evaluate, run.",
    epilog="Each command has its own help with an example: gnnforce train --help",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, module in (
    ("train", train),
    ("evaluate", evaluate),
    ("predict", predict),
    ("md", md),
    ("vibrations", vibrations),
    ("info", info),
):
    app.command(name, help=module.HELP, epilog=module.EXAMPLE)(module.command)
app.add_typer(benchmark.app, name="benchmark", help=benchmark.HELP)


def versions() -> dict[str, str]:
    """Return the versions that matter for a bug report, without importing them.

    Example:
        >>> list(versions())
        ['gnnforce', 'python', 'torch', 'torch-geometric', 'ase']
    """
    found = {"gnnforce": "", "python": python_version()}
    for package in ("gnnforce", "torch", "torch-geometric", "ase"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _print_versions(wanted: bool) -> None:
    if wanted:
        for package, number in versions().items():
            typer.echo(f"{package} {number}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_versions,
            is_eager=True,
            help="Print the versions of gnnforce, Python, torch, PyG and ASE.",
        ),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    This is the only place that turns errors into lines: whatever the user can mend is
    printed as ``error: <message>`` on standard error, without a traceback.

    Args:
        argv: Words after ``gnnforce``; those of the process when None.

    Returns:
        The exit status: 0, 2 for a mistake of the user, 130 when interrupted, 1 when a
        run ended badly. A bug raises as usual.
    """
    if argv is None:  # a process of its own
        _print_what_can_be_printed()
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        with _warnings_as_lines():
            run = typer.main.get_command(app)
            status = run.main(args=words, prog_name="gnnforce", standalone_mode=False)
    except UserError as error:
        return _fail(str(error))
    except _UsageProblem as error:
        return _fail(error.format_message())
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    return status if isinstance(status, int) else 0


def _print_what_can_be_printed() -> None:
    """Print a question mark for a letter the terminal does not have, like Å in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return _MISTAKE


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print warnings as one line each, without the file they come from."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _show_warning(  # noqa: PLR0917  (the signature that warnings.showwarning has)
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
