"""Time every derivative strategy in turns in one run, and look at what ``auto`` takes.

    python scripts/benchmark_strategies.py [--calibrate] [--json FILE]

The last columns are the choice of ``strategy="auto"`` and its time over the shortest one. With
``--calibrate`` the cost model's constants are measured first (``gnnforce.calibrate``), and
printed.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import geometric_mean

import ase.io
import torch

import gnnforce as gf
from gnnforce.derivatives.strategies import OF_MODELS

STRUCTURES = Path(__file__).parent.parent / "data" / "acac" / "train_300K.xyz"
HEADS = {
    "node_sum": {},
    "linear": {"hidden": ()},
    "pooled": {"kind": "pooled"},
}


def shortest(model: gf.ForceField, graph: gf.AtomGraph, rounds: int) -> dict[str, float]:
    """Return the shortest time of every strategy in ms; strategies in turns."""
    best = dict.fromkeys(OF_MODELS, float("inf"))
    for turn in range(rounds + 1):
        for name in OF_MODELS:
            if turn > 1 and best[name] > 5 * min(best.values()):
                continue  # out of the race; its time is kept
            start = time.perf_counter()
            model.predict(graph, ["energy", "forces"], strategy=name)
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--molecules", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--head", choices=HEADS, nargs="+", default=list(HEADS))
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.calibrate:
        for name, constants in gf.calibrate().items():
            print(name, json.dumps(constants.as_dict(), indent=1))
    rows = []
    columns = "".join(f"{name:>10s}" for name in OF_MODELS)
    print(f"head      molecules    N {columns}  ms   auto      over the shortest")
    for kind in options.head:
        for n_molecules in options.molecules:
            frames = ase.io.read(STRUCTURES, index=f":{n_molecules}")
            graph = gf.batch([gf.AtomGraph.from_atoms(frame, 5.0) for frame in frames])
            for members in options.members:
                head = gf.Head("energy", members=members, **HEADS[kind])
                model = gf.ForceField(gf.PaiNN([1, 6, 8]), [head]).eval()
                ms = shortest(model, graph, options.rounds)
                auto = model.predict(graph, ["energy", "forces"]).strategy
                ratio = ms[auto] / min(ms.values())
                rows.append({"head": kind, "molecules": n_molecules, "N": members})
                rows[-1] |= {"ms": ms, "auto": auto, "ratio": ratio}
                times = "".join(f"{ms[name]:10.1f}" for name in OF_MODELS)
                print(
                    f"{kind:8s} {n_molecules:10d} {members:4d} {times}      {auto:9s} {ratio:.2f}",
                    flush=True,
                )
    print(f"geometric mean {geometric_mean(row['ratio'] for row in rows):.3f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
