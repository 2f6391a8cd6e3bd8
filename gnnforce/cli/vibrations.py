"""``gnnforce vibrations``: harmonic frequencies with error bars."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import (
    digits,
    note,
    print_json,
    print_pairs,
    print_table,
    results_only,
)

if TYPE_CHECKING:
    from gnnforce.simulation.vibrations import Vibrations

HELP = """Compute harmonic frequencies from the analytic Hessian.

Frequencies in cm^-1 of the mean, with the standard deviation over members, modes matched by shape;
imaginary ones carry an i. Atoms fixed by the structure's constraints are left out. In a
periodic cell the modes are those of the cell given (the Gamma point)."""
EXAMPLE = "Example: gnnforce vibrations model.pt molecule.xyz --relax 0.001"
SMALL_FORCE = 0.05  # eV/Angstrom


def command(  # noqa: PLR0913  (options of the command line, all by name)
    model: args.Model,
    structure: Annotated[
        Path, typer.Argument(metavar="STRUCTURE", help="One structure, any format.")
    ],
    *,
    relax: Annotated[
        float | None,
        typer.Option(metavar="EV/Å", help="Relax first, to this largest force (eV/Å)."),
    ] = None,
    all_atoms: Annotated[
        bool, typer.Option("--all-atoms", help="Let fixed atoms move too.")
    ] = False,
    index: Annotated[int, typer.Option(metavar="N", help="Which frame.")] = 0,
    head: args.HeadName = None,
    device: args.Device = "cpu",
    as_json: args.AsJson = False,
) -> None:
    """Compute harmonic frequencies of one structure."""
    with results_only(as_json):
        from gnnforce.cli.models import open_model, pick_head  # noqa: PLC0415
        from gnnforce.datasets.readers import read_frames  # noqa: PLC0415
        from gnnforce.simulation import vibrations as modes  # noqa: PLC0415

        force_field = open_model(model, device, "float64")
        name = pick_head(force_field, head)
        atoms = read_frames(structure, str(index))[0]
        ignored = modes.ignored_constraints(atoms)
        if ignored:
            note(f"warning: constraints that are ignored: {', '.join(ignored)}")
        if relax is not None:
            atoms = modes.relaxed(atoms, force_field, name, relax)
        found = modes.vibrations(atoms, force_field, name, all_atoms=all_atoms)
        if found.max_force > SMALL_FORCE:
            note(
                f"warning: a force of {found.max_force:.3g} eV/Å is left, so this is no "
                "minimum; use --relax 0.001"
            )
        if atoms.pbc.any():
            note("the modes are those at the Gamma point of the cell given")
        report = summarize(found)
        report["model"], report["head"] = model, name
    if as_json:
        print_json(report)
    else:
        _print(report)


def summarize(found: "Vibrations") -> dict[str, Any]:
    """Put frequencies into plain numbers.

    Returns:
        ``modes``: ``frequency`` (cm^-1, without sign), ``imaginary``, and of a
        committee ``deviation`` and ``members`` (cm^-1, imaginary ones negative); ``zero_point_energy`` (eV) and ``max_force``
        (eV/Angstrom).
    """
    rows = []
    for number, frequency in enumerate(found.frequencies):
        imaginary = bool(abs(frequency.imag) > abs(frequency.real))
        size = abs(frequency.imag) if imaginary else frequency.real
        row: dict[str, Any] = {"frequency": float(size), "imaginary": imaginary}
        if found.deviation is not None:
            row["deviation"] = float(found.deviation[number])
            row["members"] = found.members[:, number].tolist()
        rows.append(row)
    return {
        "modes": rows,
        "zero_point_energy": found.zero_point_energy,
        "max_force": found.max_force,
        "units": {
            "frequency": "1/cm",
            "deviation": "1/cm",
            "members": "1/cm",
            "zero_point_energy": "eV",
            "max_force": "eV/Angstrom",
        },
    }


def _print(report: dict[str, Any]) -> None:
    rows = []
    for number, mode in enumerate(report["modes"]):
        text = f"{mode['frequency']:.1f}{'i' if mode['imaginary'] else ''}"
        spread = f"{mode['deviation']:.1f}" if "deviation" in mode else "-"
        rows.append([number, text, spread])
    print_table(["mode", "1/cm", "std"], rows)
    print_pairs(
        {
            "head": report["head"],
            "zero-point energy": f"{digits(report['zero_point_energy'], 5)} eV",
            "largest force": f"{digits(report['max_force'])} eV/Å",
        }
    )
