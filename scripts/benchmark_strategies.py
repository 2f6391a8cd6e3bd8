"""Time energies and forces of N outputs by every derivative strategy, in turns in one run.

    python scripts/benchmark_strategies.py [--json FILE]

The last column is what ``strategy="auto"`` takes; its thresholds, in
``gnnforce.derivatives.strategies``, are read off this table.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import ase.io
import torch

import gnnforce as gf
from gnnforce.derivatives.strategies import STRATEGIES, choose_strategy

STRUCTURES = Path(__file__).parent.parent / "data" / "acac" / "train_300K.xyz"


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--molecules", type=int, nargs="+", default=[1, 4, 8, 32])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = []
    print(
        "molecules  edges  N      " + "".join(f"{s:>12s}" for s in STRATEGIES) + "  auto"
    )
    for n_molecules in options.molecules:
        frames = ase.io.read(STRUCTURES, index=f":{n_molecules}")
        graph = gf.batch([gf.AtomGraph.from_atoms(frame, 5.0) for frame in frames])
        for members in options.members:
            head = gf.Head("energy", members=members)
            model = gf.ForceField(gf.PaiNN([1, 6, 8]), [head]).eval()
            seconds = {name: [] for name in STRATEGIES}
            for _ in range(options.rounds + 1):
                for name in STRATEGIES:
                    start = time.perf_counter()
                    model.predict(graph, ["energy", "forces"], strategy=name)
                    seconds[name].append(time.perf_counter() - start)
            ms = {name: 1e3 * median(times[1:]) for name, times in seconds.items()}
            auto = choose_strategy("auto", members, 3 * graph.n_edges)
            rows.append({"molecules": n_molecules, "edges": graph.n_edges, "N": members})
            rows[-1] |= {"ms": ms, "auto": auto}
            times = "".join(f"{ms[name]:9.1f} ms" for name in STRATEGIES)
            print(f"{n_molecules:9d} {graph.n_edges:6d} {members:3d}     {times}  {auto}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
