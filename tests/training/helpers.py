"""Small labeled graphs and runs, made without reading files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.training.building import build_model
from gnnforce.training.config import TrainingConfig, make_config
from gnnforce.training.module import TrainingModule

CUTOFF = 3.0
TINY = {
    "backbone": "schnet",
    "n_features": 8,
    "n_layers": 1,
    "n_radial": 6,
    "cutoff": CUTOFF,
}


def h2(length: float = 0.74) -> Atoms:
    return Atoms("H2", [[0, 0, 0], [0, 0, length]])


def morse(length: float) -> tuple[float, float]:
    """Energy, and force along the bond on the second atom, of a Morse curve."""
    decay = np.exp(-2.0 * (length - 0.74))
    return 4.5 * ((1 - decay) ** 2 - 1), -2 * 4.5 * (1 - decay) * decay * 2.0


def h2_frames(lengths: Sequence[float], name: str = "") -> list[Atoms]:
    """H2 molecules labeled with a Morse curve; ``name`` prefixes the keys."""
    frames = []
    for length in lengths:
        atoms = h2(length)
        energy, force = morse(length)
        forces = np.array([[0, 0, -force], [0, 0, force]])
        if name:
            atoms.info[f"{name}_energy"] = energy
            atoms.arrays[f"{name}_forces"] = forces
        else:
            atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        frames.append(atoms)
    return frames


def lengths(n: int, first: float = 0.7, last: float = 1.0) -> list[float]:
    return np.linspace(first, last, n).tolist()


def write_frames(path: Path, frames: Sequence[Atoms]) -> Path:
    write(path, list(frames))
    return path


def label(
    atoms: Atoms,
    energies: Sequence[float | None],
    forces: Sequence[np.ndarray | None],
    *,
    frame_id: int = 0,
    weight: float = 1.0,
    stress: Sequence[np.ndarray | None] | None = None,
) -> AtomGraph:
    """Return a graph with one label or None for every head."""
    graph = AtomGraph.from_atoms(atoms, CUTOFF)
    n, heads = len(atoms), len(energies)
    stress = [None] * heads if stress is None else stress
    graph["energy_labels"] = torch.tensor(
        [[0.0 if e is None else e for e in energies]], dtype=torch.float64
    )
    graph["energy_mask"] = torch.tensor([[e is not None for e in energies]])
    rows = [np.zeros((n, 3)) if f is None else f for f in forces]
    graph["forces_labels"] = torch.tensor(np.stack(rows, axis=1), dtype=torch.float64)
    graph["forces_mask"] = torch.tensor([[f is not None for f in forces]] * n)
    tensors = [np.zeros((3, 3)) if s is None else s for s in stress]
    graph["stress_labels"] = torch.tensor(np.stack(tensors)[None], dtype=torch.float64)
    graph["stress_mask"] = torch.tensor([[s is not None for s in stress]])
    graph["frame_weight"] = torch.tensor([weight], dtype=torch.float64)
    graph["frame_id"] = torch.tensor([frame_id])
    return graph


def h2_graphs(lengths: Sequence[float]) -> list[AtomGraph]:
    graphs = []
    for number, atoms in enumerate(h2_frames(lengths)):
        results = atoms.calc.results
        graphs.append(
            label(atoms, [results["energy"]], [results["forces"]], frame_id=number)
        )
    return graphs


def settings(data: dict | None = None, **sections: dict) -> TrainingConfig:
    """Return a small configuration in float64; keywords add to its sections."""
    values = {
        "data": {"train": "unused.xyz"} | (data or {}),
        "model": TINY | sections.get("model", {}),
        "training": {"dtype": "float64", "batch_size": 2} | sections.get("training", {}),
    }
    if not {"epochs", "minutes"} & set(values["training"]):
        values["training"]["epochs"] = 2
    return make_config(values | sections.get("top", {}))


def make_model(config: TrainingConfig, elements: Sequence[int] = (1,)) -> ForceField:
    return build_model(config, elements)


def make_module(
    config: TrainingConfig, graphs: Sequence[AtomGraph], quantities=("energy", "forces")
) -> TrainingModule:
    return TrainingModule(make_model(config), config, graphs, quantities)
