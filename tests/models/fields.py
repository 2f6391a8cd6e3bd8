"""Models with random weights, and plain ways to evaluate them."""

import numpy as np
import torch
from ase import Atoms

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

ELEMENTS = [1, 6, 7, 8, 14, 18, 29]
ARCHITECTURES = {"PaiNN": PaiNN, "SchNet": SchNet}
THREE = (Head("pbe"), Head("hf"), Head("cc"))
KINDS = (
    Head("sum", members=2),
    Head("linear", hidden=()),
    Head("mean", members=2, kind="node_mean"),
    Head("pool", members=2, kind="pooled", hidden=(8, 8)),
)


def make_field(
    architecture="PaiNN",
    heads=THREE,
    *,
    cutoff=5.0,
    repulsion=False,
    dtype=torch.float64,
    seed=3,
    **sizes,
) -> ForceField:
    """A force field whose biases, references and scales are not those of a new one."""
    sizes = {"n_features": 8, "n_layers": 2} | sizes
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        make = ARCHITECTURES.get(architecture, architecture)  # a name or a class
        backbone = make(ELEMENTS, cutoff=cutoff, **sizes)
        model = ForceField(backbone, heads, repulsion=repulsion).to(torch.float64)
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.set_references(
        {
            head.name: {z: -10.0 * (row + 1) - 0.3 * z for z in ELEMENTS}
            for row, head in enumerate(heads)
        }
    )
    model.set_scales(
        {
            head.name: {z: 1 + 0.1 * row + 0.02 * z for z in ELEMENTS}
            for row, head in enumerate(heads)
        }
    )
    return model.to(dtype)


def graph_of(*structures: Atoms, cutoff=5.0, dtype=torch.float64):
    """One graph, or a batch of several."""
    graphs = [AtomGraph.from_atoms(atoms, cutoff, dtype) for atoms in structures]
    return batch(graphs) if len(graphs) > 1 else graphs[0]


def evaluate(model, atoms, *wanted, **options):
    """Arrays by name; quantities of a structure lose their axis of graphs."""
    wanted = wanted or ("energy", "forces")
    out = model.predict(graph_of(atoms, cutoff=model.cutoff), wanted, **options)
    values = {name: np.asarray(value.double()) for name, value in out.items()}
    per_graph = ("energy", "stress", "virial")
    return {k: v[:, 0] if k in per_graph else v for k, v in values.items()}


def relative(found, expected) -> float:
    """Largest difference over the largest number expected."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())
