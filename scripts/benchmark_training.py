"""Time a training step of a committee: one member's forces a frame, or all members'.

    python scripts/benchmark_training.py [--members 1 8 16]

Forward pass, forces, loss and backward pass of PaiNN 64 x 3 on four AcAc molecules, all sizes
in turns in one run. With one member a frame (``derivative_members: 1``, the default of
``gnnforce train``) every step is one pull-back, whatever the number of members, and its loss
is an unbiased estimate of that of all members.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import ase.io
import numpy as np
import torch

import gnnforce as gf

STRUCTURES = Path(__file__).parent.parent / "data" / "acac" / "train_300K.xyz"


def step(
    model: gf.ForceField, graph: gf.AtomGraph, forces: torch.Tensor, drawn: bool
) -> float:
    """Return the seconds of one forward and backward pass."""
    weights = None
    if drawn:
        weights = torch.zeros(1, model.n_outputs, graph.n_graphs)
        member = torch.randint(0, model.n_outputs, (graph.n_graphs,))
        weights[0, member, torch.arange(graph.n_graphs)] = 1.0
    start = time.perf_counter()
    out = model.predict(graph, create_graph=True, weights=weights, strategy="loop")
    loss = (out["forces"] - forces).pow(2).mean() + out["energy"].pow(2).mean()
    loss.backward()
    return time.perf_counter() - start


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 8, 16])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    frames = ase.io.read(STRUCTURES, index=":4")
    graph = gf.batch([gf.AtomGraph.from_atoms(frame, 5.0) for frame in frames])
    forces = torch.tensor(np.concatenate([frame.get_forces() for frame in frames]))
    models = {
        n: gf.ForceField(gf.PaiNN([1, 6, 8]), [gf.Head("energy", members=n)])
        for n in options.members
    }
    seconds = {(n, drawn): [] for n in models for drawn in (True, False)}
    for _ in range(options.rounds + 1):
        for (n, drawn), times in seconds.items():
            times.append(step(models[n], graph, forces, drawn))
    print("members   one drawn a frame   all members (loop)")
    for n in models:
        one, every = (1e3 * median(seconds[n, drawn][1:]) for drawn in (True, False))
        print(f"{n:7d} {one:17.1f} ms {every:17.1f} ms")


if __name__ == "__main__":
    main()
