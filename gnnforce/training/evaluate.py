"""Errors of a trained model on labeled frames, as numbers and as arrays for plots."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.models.predictions import Predictions
from gnnforce.training.batches import Frames, join
from gnnforce.training.metrics import LABELED, ErrorSums

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Labels and predictions of one quantity of one head, labeled entries only.

    Attributes:
        reference: Labels: energies ``(n,)`` in eV, forces ``(n, 3)`` in eV/Å of labeled
            atoms, stress ``(n, 3, 3)`` in eV/Å³.
        mean: Mean over the members, same shape.
        std: Standard deviation over the members (ddof 1), same shape; None for a head
            with one member.
        frames: Row of the frame of every entry, shape ``(n,)``.
        n_atoms: Number of atoms of that frame, shape ``(n,)``.
    """

    reference: Array
    mean: Array
    std: Array | None
    frames: NDArray[np.int64]
    n_atoms: NDArray[np.int64]


@dataclass(frozen=True)
class Evaluation:
    """How well a model does.

    Attributes:
        metrics: ``{"n_frames", "n_atoms", "heads": {head: {quantity: {"mae", "rmse",
            "count", "unit"}}}}`` of the committee mean, for the quantities ``energy``,
            ``energy_per_atom``, ``forces`` and ``stress``; plain values for JSON, None
            and a count of 0 where nothing is labeled.
        energy: What was compared, by head; a head without labels is missing.
        forces: The same for forces.
        stress: The same for stress.
    """

    metrics: dict[str, Any]
    energy: dict[str, Compared]
    forces: dict[str, Compared]
    stress: dict[str, Compared]


def evaluate(model: ForceField, dataset: Frames, *, batch_size: int = 16) -> Evaluation:
    """Compare a model with the labels of a data set.

    Args:
        model: The model.
        dataset: Graphs with label fields whose heads are those of the model, such as a
            ``StructureDataset``.
        batch_size: Frames at a time.

    Returns:
        Errors of the committee mean, and what was compared.
    """
    wanted = [name for name in LABELED if _labeled(dataset, name)]
    sums = ErrorSums(model.head_names)
    parts: list[dict[tuple[str, str], Compared]] = []
    for start in range(0, len(dataset), batch_size):
        rows = range(start, min(start + batch_size, len(dataset)))
        graph = join([dataset[row] for row in rows])
        predictions = _predict(model, graph, list(dict.fromkeys(["energy", *wanted])))
        sums.add(graph, {name: _means(predictions, name) for name in predictions})
        parts.append(_compare(predictions, graph, start, wanted))
    tables = {
        name: {
            head: _joined([part[name, head] for part in parts if (name, head) in part])
            for head in model.head_names
            if any((name, head) in part for part in parts)
        }
        for name in LABELED
    }
    counts = [dataset[row].n_atoms for row in range(len(dataset))]
    metrics = {"n_frames": len(counts), "n_atoms": sum(counts), "heads": sums.metrics()}
    return Evaluation(metrics, **tables)


def _labeled(dataset: Frames, quantity: str) -> bool:
    return any(
        bool(dataset[row][f"{quantity}_mask"].any()) for row in range(len(dataset))
    )


def _predict(model: ForceField, graph: AtomGraph, wanted: list[str]) -> Predictions:
    """Predict every output; identity weights allow frames without a stress."""
    unit = torch.eye(model.n_outputs, dtype=torch.float64, device=model.device)
    weights = unit[:, :, None].expand(*unit.shape, graph.n_graphs)
    on_device = graph if model.device.type == "cpu" else graph.clone().to(model.device)
    out = model.predict(
        on_device, wanted, weights=weights if "stress" in wanted else None
    )
    return Predictions({n: v.cpu() for n, v in out.items()}, out.outputs, out.strategy)


def _means(predictions: Predictions, quantity: str) -> torch.Tensor:
    heads = predictions.outputs.names
    return torch.stack([predictions.head(head).mean(quantity) for head in heads])


def _compare(
    predictions: Predictions, graph: AtomGraph, start: int, wanted: list[str]
) -> dict[tuple[str, str], Compared]:
    """Pick the labeled entries of every head and quantity of a batch."""
    sizes = torch.bincount(graph.graph_index, minlength=graph.n_graphs)
    found = {}
    for quantity in wanted:
        owner = torch.arange(graph.n_graphs)
        if quantity == "forces":
            owner = graph.graph_index
        for number, head in enumerate(predictions.outputs.names):
            kept = graph[f"{quantity}_mask"][:, number]
            if not bool(kept.any()):
                continue
            of_head = predictions.head(head)
            alone = predictions.outputs.head(head).members == 1
            found[quantity, head] = Compared(
                reference=graph[f"{quantity}_labels"][kept, number].double().numpy(),
                mean=of_head.mean(quantity)[kept].double().numpy(),
                std=None if alone else of_head.std(quantity)[kept].double().numpy(),
                frames=(owner[kept] + start).numpy(),
                n_atoms=sizes[owner[kept]].numpy(),
            )
    return found


def _joined(parts: list[Compared]) -> Compared:
    stds = [part.std for part in parts if part.std is not None]
    return Compared(
        reference=np.concatenate([part.reference for part in parts]),
        mean=np.concatenate([part.mean for part in parts]),
        std=np.concatenate(stds) if stds else None,
        frames=np.concatenate([part.frames for part in parts]),
        n_atoms=np.concatenate([part.n_atoms for part in parts]),
    )
