"""``gnnforce md``: molecular dynamics with an error bar on every force."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import (
    digits,
    note,
    print_json,
    print_pairs,
    progress_bar,
    results_only,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gnnforce.simulation.md import MDResult

HELP = """Run molecular dynamics, watching the committee's force uncertainty.

The folder gets md.csv, trajectory.extxyz, final.xyz, restart.json, summary.json and
trajectory.png. With --max-force-std the run stops at the first step whose largest force
uncertainty is above the limit, and writes that frame to uncertain.xyz (exit status 0); a
run that falls apart ends with exit status 1."""
EXAMPLE = (
    "Example: gnnforce md model.pt start.xyz --temperature 300 --steps 2000 -o md "
    "--max-force-std 0.5"
)


def command(  # noqa: PLR0913  (options of the command line, all by name)
    model: args.Model,
    start: Annotated[
        Path, typer.Argument(metavar="START", help="Structure to start from, any format.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for all files.")
    ] = Path("md"),
    temperature: Annotated[
        float, typer.Option(metavar="K", help="Of thermostat and initial velocities.")
    ] = 300.0,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps to make.")] = 2000,
    timestep: Annotated[float, typer.Option(metavar="FS", help="Time step in fs.")] = 0.5,
    ensemble: Annotated[
        str, typer.Option(metavar="NAME", help="langevin, nve or npt.")
    ] = "langevin",
    friction: Annotated[
        float, typer.Option(metavar="1/PS", help="Coupling to the thermostat in 1/ps.")
    ] = 10.0,
    pressure: Annotated[float, typer.Option(metavar="GPA", help="Of npt, in GPa.")] = 0.0,
    max_force_std: Annotated[
        float | None,
        typer.Option(metavar="EV/Å", help="Stop above this force uncertainty (eV/Å)."),
    ] = None,
    log_every: Annotated[
        int, typer.Option(metavar="N", help="Steps between lines of log and trajectory.")
    ] = 10,
    restart: Annotated[
        bool, typer.Option("--restart", help="Go on with the run in the folder.")
    ] = False,
    index: Annotated[int, typer.Option(metavar="N", help="Which frame of START.")] = 0,
    head: args.HeadName = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of velocities and noise.")] = 0,
    device: args.Device = "cpu",
    dtype: args.Dtype = None,
    threads: args.Threads = None,
    plots: args.Plots = True,
    progress: args.ShowProgress = None,
    as_json: args.AsJson = False,
) -> None:
    """Run molecular dynamics from one structure."""
    with results_only(as_json):
        from gnnforce.calculators.ase import Calculator  # noqa: PLC0415
        from gnnforce.cli import plots as pictures  # noqa: PLC0415
        from gnnforce.cli.models import open_model, pick_head  # noqa: PLC0415
        from gnnforce.datasets.readers import read_frames  # noqa: PLC0415
        from gnnforce.simulation.md import run_md  # noqa: PLC0415

        if plots:
            pictures.require_matplotlib()
        force_field = open_model(model, device, dtype)
        calculator = Calculator(
            force_field, head=pick_head(force_field, head), threads=threads
        )
        atoms = read_frames(start, str(index))[0]
        with progress_bar("md", steps, progress) as advance:
            result = run_md(
                atoms,
                calculator,
                folder=output,
                ensemble=ensemble,  # type: ignore[arg-type]  # run_md checks the name
                temperature=temperature,
                timestep_fs=timestep,
                steps=steps,
                log_every=log_every,
                max_force_std=max_force_std,
                seed=seed,
                restart=restart,
                friction_per_ps=friction,
                pressure_gpa=pressure,
                progress=lambda step, last, record: advance(
                    steps - (last - step), _remark(record)
                ),
            )
        table = result.log()
        report = summarize(result, table, timestep)
        report["model"], report["head"] = model, calculator.head
        if plots:
            figure = pictures.trajectory(
                table,
                target_temperature=None if ensemble == "nve" else temperature,
                max_force_std=max_force_std,
            )
            report["files"].append(pictures.save(figure, output / "trajectory.png"))
        report["files"].append(write_json(report, output / "summary.json"))
    if as_json:
        print_json(report)
    else:
        _print(report)
    if result.reason == "unstable":
        note(f"error: {result.message}")
        raise typer.Exit(1)


def summarize(
    result: "MDResult", table: "Mapping[str, NDArray[Any]]", timestep_fs: float
) -> dict[str, Any]:
    """Put a run into plain numbers.

    Args:
        result: How the run ended.
        table: Its log.
        timestep_fs: In fs.

    Returns:
        Reason and message, steps, time (ps), mean temperature (K), change of the total
        energy (eV), mean and largest force uncertainty (eV/Angstrom) of a committee,
        and the files written.
    """
    report: dict[str, Any] = {
        "reason": result.reason,
        "message": result.message,
        "steps": result.step,
        "time_ps": result.step * timestep_fs / 1000.0,
        "temperature_mean": float(table["temperature"].mean()),
        "energy_change": float(table["etot"][-1] - table["etot"][0]),
    }
    if "forces_std_max" in table:
        report["forces_std_max"] = float(table["forces_std_max"].max())
        report["forces_std_mean"] = float(table["forces_std_mean"].mean())
    report["units"] = {
        "temperature_mean": "K",
        "energy_change": "eV",
        "forces_std_max": "eV/Angstrom",
        "forces_std_mean": "eV/Angstrom",
    }
    report["folder"] = result.folder
    report["files"] = sorted(p for p in result.folder.iterdir() if p.is_file())
    return report


def _remark(record: "Mapping[str, float]") -> str:
    text = f"{record['temperature']:.0f} K"
    if "forces_std_max" in record:
        text += f", max std {digits(record['forces_std_max'])} eV/Å"
    return text


def _print(report: dict[str, Any]) -> None:
    pairs = {
        "run": report["message"],
        "time": f"{digits(report['time_ps'])} ps",
        "temperature (mean)": f"{report['temperature_mean']:.0f} K",
        "total energy change": f"{digits(report['energy_change'])} eV",
    }
    if "forces_std_max" in report:
        pairs["force uncertainty (mean)"] = f"{digits(report['forces_std_mean'])} eV/Å"
        pairs["force uncertainty (largest)"] = f"{digits(report['forces_std_max'])} eV/Å"
    pairs["folder"] = str(report["folder"])
    pairs["files"] = ", ".join(sorted({path.name for path in report["files"]}))
    print_pairs(pairs)
