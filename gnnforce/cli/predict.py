"""``gnnforce predict``: write what a model predicts beside what the file holds."""

from pathlib import Path
from typing import Annotated

import typer

from gnnforce.cli import arguments as args
from gnnforce.cli.console import (
    digits,
    print_json,
    print_pairs,
    progress_bar,
    results_only,
)

HELP = """Predict energies, forces and stress, and write them beside the input.

Every frame is written as extended XYZ with all it had (positions, labels, info, arrays)
and, for each head: NAME_energy (eV), NAME_forces (eV/Å), NAME_stress (eV/Å³, 3x3, sign as
in ASE) and, for a committee, NAME_energy_std, NAME_forces_std, NAME_stress_std (over the
members, ddof=1)."""
EXAMPLE = "Example: gnnforce predict model.pt in.xyz -o out.xyz"


def command(  # noqa: PLR0913  (options of the command line, all by name)
    model: args.Model,
    data: args.Structures,
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write, *.xyz."),
    ],
    head: args.HeadNames = None,
    stress: Annotated[
        bool,
        typer.Option("--stress", help="Predict stress too; all frames must be periodic."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace predictions the input has.")
    ] = False,
    index: args.Index = ":",
    batch_size: args.BatchSize = 32,
    device: args.Device = "cpu",
    dtype: args.Dtype = None,
    threads: args.Threads = None,
    progress: args.ShowProgress = None,
    as_json: args.AsJson = False,
) -> None:
    """Predict every frame of a file."""
    with results_only(as_json):
        from gnnforce.calculators.threads import check_threads, thread_limit  # noqa: PLC0415
        from gnnforce.cli import predicting as steps  # noqa: PLC0415
        from gnnforce.cli.models import open_model, pick_heads  # noqa: PLC0415
        from gnnforce.datasets.readers import read_frames  # noqa: PLC0415

        steps.check_output(output, data)
        force_field = open_model(model, device, dtype)
        heads = pick_heads(force_field, head)
        frames = read_frames(data, index)
        steps.check_frames(frames, force_field, heads, stress=stress, overwrite=overwrite)
        wanted = ["energy", "forces", *["stress"] * stress]
        with (
            thread_limit(check_threads(threads)),
            progress_bar("predict", len(frames), progress) as advance,
        ):
            for done, largest in steps.predict_frames(
                force_field, frames, heads, wanted, batch_size=batch_size
            ):
                remark = "" if largest is None else f"max std {digits(largest)} eV/Å"
                advance(done, remark)
        steps.write_frames(frames, output)
    keys = steps.written_keys(force_field, heads, wanted)
    report = {"frames": len(frames), "heads": heads, "keys": keys, "output": output}
    if as_json:
        print_json(report)
    else:
        pairs = {"frames": len(frames), "written to": output}
        print_pairs(pairs | {"info": ", ".join(keys["info"])})
        print_pairs({"arrays    ": ", ".join(keys["arrays"])})
