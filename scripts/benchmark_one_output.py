"""Time one output (energy and forces) of PaiNN 64 x 3, beside SchNetPack's when given.

    python scripts/benchmark_one_output.py --peer-python OTHER_VENV/bin/python

Both run on the same AcAc molecules with the same edges and number of threads, in turns
in one run; the ratio of medians is what counts. The peer is optional and lives in its own
virtual environment (`pip install "schnetpack>=2.1"`).
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from statistics import median

import ase.io
import torch

import gnnforce as gf
from gnnforce.graph.views import edge_graphs

ROOT = Path(__file__).parent
STRUCTURES = ROOT.parent / "data" / "acac" / "train_300K.xyz"


class Peer:
    """A process of another virtual environment that times its own model."""

    def __init__(self, python: str, cases: dict[str, gf.AtomGraph], threads: int) -> None:
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(ROOT / "peers" / "schnetpack_painn.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        plain = {name: plain_case(graph) for name, graph in cases.items()}
        self.version = self.ask(json.dumps({"threads": threads, "cases": plain}))

    def ask(self, line: str) -> object:
        """Send a line and return the answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("the peer died: is schnetpack installed in its environment?")
        return json.loads(answer)


def plain_case(graph: gf.AtomGraph) -> dict[str, list]:
    """Return a batch as plain lists."""
    source, target = graph.edge_index.tolist()
    cells = graph.cell[edge_graphs(graph)]
    return {
        "numbers": graph.numbers.tolist(),
        "positions": graph.positions.tolist(),
        "cell": graph.cell.tolist(),
        "pbc": graph.pbc.tolist(),
        "source": source,
        "target": target,
        "offsets": (graph.edge_shifts[:, None] @ cells)[:, 0].tolist(),
        "graph": graph.graph_index.tolist(),
        "n_atoms": graph.graph_index.bincount().tolist(),
    }


def seconds_of(model: gf.ForceField, graph: gf.AtomGraph, repeats: int) -> list[float]:
    """Time energy and forces."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.predict(graph, ["energy", "forces"])
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="interpreter that has schnetpack")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    frames = ase.io.read(STRUCTURES, index=":32")
    graphs = [gf.AtomGraph.from_atoms(frame, 5.0) for frame in frames]
    cases = {"1 molecule": graphs[0], "32 molecules": gf.batch(graphs)}
    cases = {name.replace(" ", "_"): graph for name, graph in cases.items()}
    model = gf.ForceField(gf.PaiNN([1, 6, 8]), [gf.Head("energy")]).eval()
    peer = None
    if options.peer_python:
        peer = Peer(options.peer_python, cases, options.threads)
        print("peer:", peer.version)
    result = {}
    for name, graph in cases.items():
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours += seconds_of(model, graph, 4)[1:]
            if peer:
                theirs += peer.ask(f"run {name} 4")[1:]
        result[name] = {"gnnforce_ms": 1e3 * median(ours)}
        line = f"{name:14s} gnnforce {1e3 * median(ours):8.2f} ms"
        if peer:
            result[name] |= {
                "schnetpack_ms": 1e3 * median(theirs),
                "ratio": median(ours) / median(theirs),
            }
            line += f"   schnetpack {1e3 * median(theirs):8.2f} ms"
            line += f"   ratio {median(ours) / median(theirs):.2f}"
        print(line)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
