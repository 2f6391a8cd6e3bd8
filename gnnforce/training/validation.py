"""Errors of the committee mean over a set of frames."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.training.metrics import ErrorSums, head_weights


def mean_predictions(
    model: ForceField, graph: AtomGraph, wanted: Sequence[str]
) -> dict[str, Tensor]:
    """Predict the mean over the members of every head; one pull-back a head.

    Args:
        model: The model.
        graph: A graph or batch on its device.
        wanted: Out of ``energy``, ``forces`` and ``stress``; rows of the stress of
            graphs without one are zero.

    Returns:
        Heads first: ``energy`` (n_heads, n_graphs), ``forces`` (n_heads, n_atoms, 3),
        ``stress`` (n_heads, n_graphs, 3, 3).
    """
    averaging = head_weights([head.members for head in model.heads]).to(model.device)
    weights = averaging[:, :, None].expand(*averaging.shape, graph.n_graphs)
    out = model.predict(graph, wanted, weights=weights)
    means = {name: out[name] for name in wanted if name != "energy"}
    means["energy"] = averaging @ out["energy"]
    return means


def validate(
    model: ForceField, batches: Iterable[AtomGraph], wanted: Sequence[str]
) -> ErrorSums:
    """Sum the errors of the committee mean.

    Args:
        model: The model; its mode and gradients are left as they are.
        batches: Batches with label fields, on any device.
        wanted: The quantities to compare.

    Returns:
        Sums over all batches.
    """
    names = list(dict.fromkeys(["energy", *wanted]))
    sums = ErrorSums(model.head_names, model.device)
    with torch.no_grad():
        for batch in batches:
            on_device = batch if model.device.type == "cpu" else batch.to(model.device)
            sums.add(on_device, mean_predictions(model, on_device, names))
    return sums
