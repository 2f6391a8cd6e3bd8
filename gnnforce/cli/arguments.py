"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file written by gnnforce train.")
]
Structures = Annotated[
    Path, typer.Argument(metavar="DATA", help="Structures in any format that ASE reads.")
]
HeadName = Annotated[
    str | None,
    typer.Option(
        "--head", metavar="NAME", help="The head that answers; the model's first if none."
    ),
]
HeadNames = Annotated[
    list[str] | None,
    typer.Option(
        "--head",
        metavar="NAME",
        help="A head, may be given several times, or 'all'; the model's first if none.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="Folder for files, made if needed."
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object instead of text for people."),
]
Plots = Annotated[
    bool, typer.Option("--plots/--no-plots", help="Draw pictures into the folder.")
]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show a progress bar; by default when standard error is a terminal.",
        show_default=False,
    ),
]
Index = Annotated[
    str,
    typer.Option(
        metavar="SLICE", help="Which frames, as in Python: ':', ':100', '::10'."
    ),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="Where to compute: cpu, cuda.")]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="float32 or float64; the model's own if none."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Threads of torch; torch's own setting if none."),
]
BatchSize = Annotated[int, typer.Option(metavar="N", min=1, help="Structures at a time.")]
