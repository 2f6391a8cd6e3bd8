"""Time SchNetPack's PaiNN on request; run by benchmark_one_output.py in its own venv.

Reads one JSON line with the structures, then answers every "run NAME REPEATS" line with
the seconds of each energy-and-forces evaluation.
"""

import json
import sys
import time

import schnetpack as spk
import torch
from schnetpack import properties


def build(case: dict) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the model and its inputs for one workload."""
    dtype = torch.float32
    inputs = {
        properties.Z: torch.tensor(case["numbers"]),
        properties.R: torch.tensor(case["positions"], dtype=dtype),
        properties.cell: torch.tensor(case["cell"], dtype=dtype),
        properties.pbc: torch.tensor(case["pbc"]),
        properties.idx_i: torch.tensor(case["target"]),
        properties.idx_j: torch.tensor(case["source"]),
        properties.offsets: torch.tensor(case["offsets"], dtype=dtype),
        properties.idx_m: torch.tensor(case["graph"]),
        properties.n_atoms: torch.tensor(case["n_atoms"]),
    }
    representation = spk.representation.PaiNN(
        n_atom_basis=64,
        n_interactions=3,
        radial_basis=spk.nn.GaussianRBF(n_rbf=20, cutoff=5.0),
        cutoff_fn=spk.nn.CosineCutoff(5.0),
    )
    model = spk.model.NeuralNetworkPotential(
        representation=representation,
        input_modules=[spk.atomistic.PairwiseDistances()],
        output_modules=[
            spk.atomistic.Atomwise(n_in=64, output_key="energy"),
            spk.atomistic.Forces(energy_key="energy", force_key="forces"),
        ],
    )
    return model.eval(), inputs


def main() -> None:
    """Serve timing requests until standard input ends."""
    setup = json.loads(sys.stdin.readline())
    torch.set_num_threads(setup["threads"])
    torch.manual_seed(0)
    ready = {name: build(case) for name, case in setup["cases"].items()}
    print(json.dumps({"version": getattr(spk, "__version__", "unknown")}), flush=True)
    for line in sys.stdin:
        _, name, repeats = line.split()
        model, inputs = ready[name]
        seconds = []
        for _ in range(int(repeats)):
            start = time.perf_counter()
            model(dict(inputs))
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
