"""Long NVE dynamics of a trained model: energy drift, resident memory, cost of a step.

    python scripts/benchmark_md.py MODEL [--structure FILE] [--steps 10000] [--json FILE]

Starts from the first frame of the structure file with velocities drawn at 300 K. The drift is
the slope of a straight line through the total energy. Resident memory goes up and down with
the allocator, so its growth is that of the median over a fifth of the run, from the second
fifth to the last; the number of Python objects is compared as well.
"""

import argparse
import gc
import json
import time
from pathlib import Path

import ase.io
import numpy as np
import psutil
from ase import units
from ase.md.verlet import VelocityVerlet

import gnnforce as gf
from gnnforce.simulation.velocities import set_velocities

STRUCTURES = Path(__file__).parent.parent / "data" / "acac" / "test_MD_300K.xyz"


def main() -> None:
    """Run the dynamics and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--structure", type=Path, default=STRUCTURES)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--timestep", type=float, default=0.5, help="fs")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    atoms = ase.io.read(options.structure, index=0)
    atoms.calc = gf.Calculator(options.model, dtype=options.dtype)
    set_velocities(atoms, 300.0, np.random.default_rng(0))
    dynamics = VelocityVerlet(atoms, options.timestep * units.fs)
    process = psutil.Process()
    energy, resident, objects = [], [], []
    start = time.perf_counter()
    for _ in range(100):
        dynamics.run(options.steps // 100)
        energy.append(atoms.get_total_energy() / len(atoms))
        resident.append(process.memory_info().rss / 2**20)
        gc.collect()
        objects.append(len(gc.get_objects()))
    seconds = time.perf_counter() - start
    picoseconds = np.arange(1, 101) * (options.steps // 100) * options.timestep / 1000
    slope, _ = np.polyfit(picoseconds, energy, 1)
    result = {
        "steps": options.steps,
        "timestep_fs": options.timestep,
        "ms_per_step": 1e3 * seconds / options.steps,
        "drift_meV_per_atom_per_ps": 1e3 * slope,
        "fluctuation_meV_per_atom": 1e3 * float(np.std(energy)),
        "resident_MiB_second_fifth": float(np.median(resident[20:40])),
        "resident_MiB_last_fifth": float(np.median(resident[80:])),
        "growth": float(np.median(resident[80:]) / np.median(resident[20:40])) - 1,
        "new_python_objects": objects[-1] - objects[20],
    }
    print("\n".join(f"{name:28s} {value:.5g}" for name, value in result.items()))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
