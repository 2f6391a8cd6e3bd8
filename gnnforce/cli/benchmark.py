"""``gnnforce benchmark``: what the forces of many outputs cost, strategy by strategy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import (
    note,
    print_json,
    progress_bar,
    results_only,
    write_json,
)
from gnnforce.errors import UserError

if TYPE_CHECKING:
    from gnnforce.testing.benchmark_setup import Setup

HELP = "Measure time, memory and agreement of derivative strategies on this machine."
FORCES = """Compare all strategies for the forces of N outputs, side by side in one run.

For every number of outputs N and every strategy: median time of energies and forces with
quartiles, all candidates in turns; R(N), the time over that of the fastest strategy for
one output; the gain over the loop with the same N; peak memory, each in a process of its
own; and how far the forces are from those of the loop, in the same precision and in
float64. With --training the same for a training step: a loss on the forces of all N
outputs, differentiated with respect to every parameter. Weights are random unless --model
is given. Exit status 1 when the numbers of a strategy are not those of the loop."""
EXAMPLE = (
    "Example: gnnforce benchmark forces --workload molecule --members 1,4,16 "
    "--json forces.json --plot forces.png"
)
WORKLOADS = ("molecule", "molecules", "periodic")  # when none is named
SIZES = {"n_features": 64, "n_layers": 3, "cutoff": 5.0}

app = typer.Typer(help=HELP)


@app.callback(invoke_without_command=True)
def group(context: typer.Context) -> None:
    """Print which benchmarks there are when none is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("forces", help=FORCES, epilog=EXAMPLE)
def command(  # noqa: PLR0913  (options of the command line, all by name)
    *,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="molecule, batch (8), molecules (32 of AcAc), periodic (1,000 atoms of "
            "Si), large (5,000); may be given several times.",
        ),
    ] = None,
    structure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Structures of your own, as one batch."),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(metavar="SLICE", help="Which frames of FILE; all if none."),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Architecture; PaiNN if none.")
    ] = None,
    features: Annotated[
        int | None, typer.Option(metavar="N", help="Features of an atom; 64 if none.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Layers; 3 if none.")
    ] = None,
    cutoff: Annotated[
        float | None, typer.Option(metavar="Å", help="Cutoff in Å; 5 if none.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the backbone of a model file instead."),
    ] = None,
    members: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of outputs; 1 is added.")
    ] = "1,4,16,64,256",
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A strategy, may be given several times; all if none. The loop is added.",
        ),
    ] = None,
    training: Annotated[
        bool, typer.Option("--training", help="Training steps instead of predictions.")
    ] = False,
    repeats: Annotated[int, typer.Option(metavar="N", help="Turns of everything.")] = 7,
    max_seconds: Annotated[
        float, typer.Option(metavar="S", help="Leave out what is slower than this.")
    ] = 20.0,
    max_memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Leave out what takes more; half of what is free if none."
        ),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Measure peak memory.")
    ] = True,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all numbers as JSON; '-' prints them."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw time against N, *.png.")
    ] = None,
    device: args.Device = "cpu",
    dtype: args.Dtype = None,
    threads: args.Threads = None,
    progress: args.ShowProgress = None,
) -> None:
    """Compare the strategies."""
    printed = json == Path("-")
    with results_only(printed):
        from gnnforce.calculators.threads import check_threads, thread_limit  # noqa: PLC0415
        from gnnforce.cli import benchmark_report as report  # noqa: PLC0415
        from gnnforce.cli.models import check_device  # noqa: PLC0415
        from gnnforce.testing.benchmark import compare  # noqa: PLC0415
        from gnnforce.testing.benchmark_plan import Plan  # noqa: PLC0415
        from gnnforce.testing.benchmark_setup import machine  # noqa: PLC0415

        report.check_files(None if printed else json, plot)
        check_device(device)
        given = {"n_features": features, "n_layers": layers, "cutoff": cutoff}
        common = common_setup(backbone, given, model)
        setups = setups_of(
            common | {"dtype": dtype, "device": device}, workload, structure, index
        )
        plan = Plan(
            members=numbers_of(members),
            strategies=strategy,
            training=training,
            repeats=repeats,
            max_seconds=max_seconds,
            max_mib=None if max_memory is None else 1024 * max_memory,
            memory=memory,
        )
        with (
            thread_limit(check_threads(threads)),
            progress_bar("benchmark", plan.n_steps * len(setups), progress) as bar,
        ):
            steps = iter(range(1, plan.n_steps * len(setups) + 1))
            found = [
                compare(one, plan, lambda text: bar(next(steps), text)) for one in setups
            ]
            where = machine(device)
        content = report.content(where, plan, setups, found)
        if plot is not None:
            report.draw(found, plot, training=training)
        if json is not None and not printed:
            write_json(content, json)
    if printed:
        print_json(content)
    else:
        report.print_all(where, found, training=training)
    wrong = [row for comparison in found for row in comparison.wrong]
    for row in wrong:
        note(
            f"error: {row.strategy} with {row.n_outputs} outputs of {row.workload} does not "
            "agree with the loop"
        )
    if wrong:
        raise typer.Exit(1)


def numbers_of(text: str) -> list[int]:
    """Return the numbers of a list with commas.

    Raises:
        UserError: For anything else.

    Example:
        >>> numbers_of("1, 4,16")
        [1, 4, 16]
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise UserError(
            f"--members takes whole numbers with commas between them, such as 1,4,16, "
            f"not {text!r}"
        ) from error


def common_setup(
    backbone: str | None, sizes: dict[str, Any], model: Path | None
) -> dict[str, Any]:
    """Return the part of a setup that says which backbone is measured.

    Raises:
        UserError: When both a model file and an architecture or its sizes are given.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    if model is None:
        return {"backbone": backbone or "PaiNN", "sizes": SIZES | given}
    if backbone is not None or given:
        raise UserError(
            "--model brings its own backbone: leave out --backbone, --features, "
            "--layers and --cutoff"
        )
    return {"model": str(model), "backbone": ""}


def setups_of(
    common: dict[str, Any],
    workloads: Sequence[str] | None,
    structure: Path | None,
    index: str | None,
) -> list["Setup"]:
    """Return one setup for each workload and for the file of structures.

    Raises:
        UserError: For frames of no file, or a workload that does not exist.
    """
    from gnnforce.testing.benchmark_setup import Setup  # noqa: PLC0415
    from gnnforce.testing.workloads import check_workload  # noqa: PLC0415

    if structure is None and index is not None:
        raise UserError("--index chooses frames of --structure, which is not given")
    names = workloads or (WORKLOADS if structure is None else ())
    setups = [Setup(check_workload(name), **common) for name in dict.fromkeys(names)]
    if structure is not None:
        setups.append(Setup(str(structure), from_file=True, index=index or ":", **common))
    return setups
