"""What the commands print: tables and lines for people, one JSON object for programs.

Results go to standard output, everything else (progress, notes, warnings, errors) to
standard error.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

MILLI = {
    "energy": ("energy", "meV"),
    "energy_per_atom": ("energy per atom", "meV/atom"),
    "forces": ("forces", "meV/Å"),
    "stress": ("stress", "meV/Å³"),
}
Advance = Callable[[int, str], None]


@contextmanager
def results_only(as_json: bool) -> Iterator[None]:
    """Keep standard output free for the JSON object while the work is done."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def plain(value: Any) -> Any:  # noqa: ANN401
    """Turn nested values into what JSON has; numbers that are not finite become null.

    Example:
        >>> plain({"a": np.float64(0.5), "b": float("nan"), "c": Path("x"), 1: (1, 2)})
        {'a': 0.5, 'b': None, 'c': 'x', '1': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def as_json_text(report: Mapping[str, Any]) -> str:
    """Return the report as strict JSON."""
    return json.dumps(plain(report), indent=2, allow_nan=False, ensure_ascii=False)


def write_json(report: Mapping[str, Any], path: Path) -> Path:
    """Write the report to a file and return its path."""
    path.write_text(as_json_text(report) + "\n", encoding="utf-8")
    return path


def print_json(report: Mapping[str, Any]) -> None:
    """Print the report as the one JSON object on standard output."""
    print(as_json_text(report))


def note(text: str) -> None:
    """Tell people something that is not a result."""
    print(text, file=sys.stderr)


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print names and values in two columns.

    Example:
        >>> print_pairs({"atoms": 15, "cell": "none"})
        atoms  15
        cell   none
    """
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name:<{width}}  {value}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; the first column is left aligned, the others right.

    Example:
        >>> print_table(["head", "RMSE"], [["pbe", "1.25"], ["ccsd(t)", "10.5"]])
        head     RMSE
        -------  ----
        pbe      1.25
        ccsd(t)  10.5
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (list(columns), ["-" * width for width in widths], *cells):
        first, *others = zip(row, widths, strict=True)
        aligned = [f"{first[0]:<{first[1]}}", *(f"{c:>{w}}" for c, w in others)]
        print("  ".join(aligned).rstrip())


def digits(value: float | None, n: int = 3) -> str:
    """Return a number with ``n`` significant digits, without an exponent near one.

    Example:
        >>> digits(12.345), digits(0.012345), digits(1234.5), digits(None)
        ('12.3', '0.0123', '1234', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{n}g}"
    places = n - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(places, 0)}f}"


def print_errors(heads: Mapping[str, Mapping[str, Any]]) -> None:
    """Print root mean square and mean absolute errors in thousandths of their units.

    Args:
        heads: ``{head: {quantity: {"rmse", "mae", "count"}}}`` in eV, eV/atom,
            eV/Angstrom and eV/Angstrom^3; what has no count is left out.

    Example:
        >>> print_errors({"pbe": {"forces": {"rmse": 0.05, "mae": 0.04, "count": 9}}})
        head  quantity  RMSE   MAE   unit
        ----  --------  ----  ----  -----
        pbe     forces  50.0  40.0  meV/Å
    """
    rows = [
        [head, word, *(digits(1000 * entries[name][k]) for k in ("rmse", "mae")), unit]
        for head, entries in heads.items()
        for name, (word, unit) in MILLI.items()
        if name in entries and entries[name]["count"]
    ]
    print_table(["head", "quantity", "RMSE", "MAE", "unit"], rows)


@contextmanager
def progress_bar(task: str, total: int, show: bool | None) -> Iterator[Advance]:
    """Show a progress bar on standard error.

    Args:
        task: What is being done.
        total: Number of pieces.
        show: Yes, no, or None for yes when standard error is a terminal.

    Yields:
        A function ``advance(done, text)``: pieces done so far, and a remark.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, force_terminal=True if show else None)
    visible = console.is_terminal if show is None else show
    if not visible:  # some versions of rich print a line for a disabled bar
        yield lambda done, text: None  # noqa: ARG005
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    remark = TextColumn("{task.fields[remark]}")
    with Progress(*columns, TimeRemainingColumn(), remark, console=console) as bar:
        row = bar.add_task(task, total=total, remark="")
        yield lambda done, text: bar.update(row, completed=done, remark=text)
