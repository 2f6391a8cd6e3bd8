"""The steps that strategies share: features, node cotangents, pull-backs to edges.

Every strategy but the loop works in two steps. First the readouts: each output gets a copy
of the node features, so that one backward pass gives the slopes of all of them in the
features (the node cotangents) as batched matrix products. Then the backbone: the
cotangents are pulled back together, or contracted with tangents pushed forward.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gnnforce.derivatives.jacobian import combine_nodes
from gnnforce.derivatives.loop import loop_pull_back
from gnnforce.derivatives.strategies import ENGINES
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import forces_from_edges, virials_from_edges
from gnnforce.models.combinations import Weights, count, weights_of
from gnnforce.ops.mode import chained
from gnnforce.ops.scatter import one_cotangent
from gnnforce.readouts.head import OutputTable
from gnnforce.readouts.stack import Features, Outputs

if TYPE_CHECKING:
    from gnnforce.models.force_field import ForceField

Slopes = dict[str, Tensor]  # "forces" and "virial", outputs first


@dataclass(frozen=True)
class Task:
    """One evaluation.

    Attributes:
        model: The force field.
        graph: The graph or batch.
        vectors: Edge vectors in the dtype of the graph.
        leaf: Edge vectors in the dtype of the model, which require a gradient.
        table: The outputs wanted.
        weights: Combinations of outputs, or None.
        create_graph: The results stay differentiable.
        forces: Forces are wanted.
        virial: The virial is wanted.
        per_piece: Rows that go through the backbone at once.
        memory: Limit in bytes for other temporaries.
        shared: Energy of every atom that ``node_sum`` heads share, or None; its slopes
            are not the business of a strategy.
    """

    model: "ForceField"
    graph: AtomGraph
    vectors: Tensor
    leaf: Tensor
    table: OutputTable
    weights: Weights | None
    create_graph: bool
    forces: bool
    virial: bool
    per_piece: int
    memory: int
    shared: Tensor | None


def mode_of(engine: str, *, frozen: bool = False) -> AbstractContextManager[None]:
    """Return the context in which a backbone runs for an engine of pull-backs."""
    if engine == "chain":
        return chained(frozen=frozen)
    return one_cotangent() if engine == "loop" else nullcontext()


def features_of(task: Task, engine: str) -> Features:
    """Run the backbone."""
    with mode_of(engine, frozen=not task.create_graph):
        rows = task.model.node_rows(task.graph, task.leaf)
    return split_rows(task, rows)


def split_rows(task: Task, rows: Tensor) -> Features:
    """Part the features of atoms from those of isolated atoms."""
    atoms, isolated = rows.split([task.graph.n_atoms, len(task.model.elements)])
    return Features(atoms, isolated, not task.create_graph)


def node_cotangents(
    task: Task, features: Features, table: OutputTable
) -> tuple[Outputs, Tensor]:
    r"""Evaluate readouts, and differentiate them with respect to node features.

    .. math:: C_{nif} = \partial E_n / \partial h_{if}

    Returns:
        The outputs, and the slopes of every output or combination, shape ``(n_rows,
        n_atoms, n_features)``.
    """
    single = task.weights is not None and count(task.weights) == 1
    points = features.atoms
    if not task.create_graph or not points.requires_grad:
        points = points.detach()
    if not single:
        points = points.expand(table.n_outputs, *points.shape)
    if not points.requires_grad:
        points.requires_grad_()
    with one_cotangent():
        out = task.model.readouts(
            features._replace(atoms=points), task.graph, task.shared, table
        )
        if single:
            assert task.weights is not None
            seeds = weights_of(task.weights, out.energy, table)
        else:
            seeds = torch.ones_like(out.energy)[None]
        slopes = loop_pull_back(out.energy, points, seeds, task.create_graph)
    if single:
        return out, slopes
    slopes = slopes[0]
    if task.weights is not None:
        weights = weights_of(task.weights, out.energy, table).to(slopes.dtype)
        slopes = combine_nodes(weights, slopes, task.graph, task.memory)
    return out, slopes


def pulled(task: Task, engine: str, outputs: Tensor, cotangents: Tensor) -> Slopes:
    """Pull cotangents back to the edges, in pieces, and sum them to atoms and graphs."""
    pieces = cotangents.split(task.per_piece)
    parts = []
    for number, piece in enumerate(pieces):
        if outputs.requires_grad and piece.shape[0] > 0:
            keep = number < len(pieces) - 1  # the last piece frees the graph
            rows = ENGINES[engine](outputs, task.leaf, piece, task.create_graph, keep)
        else:  # nothing that varies, or nothing asked for
            rows = task.leaf.new_zeros(piece.shape[0], *task.leaf.shape)
        parts.append(slopes_of_edges(task, rows))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def slopes_of_edges(task: Task, rows: Tensor) -> Slopes:
    """Sum gradients of edge vectors, shape ``(n_rows, n_edges, 3)``."""
    rows = rows.to(task.vectors.dtype)
    slopes: Slopes = {}
    if task.forces:
        slopes["forces"] = forces_from_edges(rows, task.graph)
    if task.virial:
        slopes["virial"] = virials_from_edges(rows, task.vectors, task.graph)
    return slopes


def by_nodes(task: Task, engine: str) -> tuple[Outputs, Slopes]:
    """Pull node cotangents of all outputs back together."""
    with mode_of(engine, frozen=not task.create_graph):
        rows = task.model.node_rows(task.graph, task.leaf)
    features = split_rows(task, rows)
    out, cotangents = node_cotangents(task, features, task.table)
    if engine != "chain" or task.create_graph:
        return out, pulled(task, engine, features.atoms, cotangents)
    return out, pulled(task, engine, rows, features_first(cotangents, rows.shape[0]))


def features_first(cotangents: Tensor, n_rows: int) -> Tensor:
    """Lay cotangents out as the primitives do, and fill up with rows of zeros.

    Args:
        cotangents: Shape ``(n_outputs, n_atoms, n_features)``.
        n_rows: Rows of the backbone, isolated atoms included.

    Returns:
        A view of shape ``(n_outputs, n_rows, n_features)`` with the outputs adjacent.
    """
    n_outputs, n_atoms, n_features = cotangents.shape
    laid = cotangents.new_empty(n_features, n_rows, n_outputs)
    laid[:, :n_atoms] = cotangents.permute(2, 1, 0)
    laid[:, n_atoms:] = 0
    return laid.permute(2, 1, 0)
