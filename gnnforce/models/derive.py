"""From a model and a graph to energies and their derivatives: which strategy, and run it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from gnnforce.backbones.base import Backbone
from gnnforce.derivatives.constants import constants_for
from gnnforce.derivatives.cost import (
    Choice,
    Constants,
    Workload,
    choose,
    engine_of,
    passes_of,
    rows_per_piece,
)
from gnnforce.derivatives.splitting import memory_limit
from gnnforce.derivatives.strategies import (
    OF_MODELS,
    check_strategy,
    pull_back,
)
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import edge_vectors, has_stress, volumes
from gnnforce.models.combinations import Weights, count, weights_of
from gnnforce.models.pooled import by_jacobian, describe, pools_for
from gnnforce.models.stages import Slopes, Task, by_nodes, pulled, slopes_of_edges
from gnnforce.models.tangents import by_forward, n_directions
from gnnforce.ops.recompute import recomputing
from gnnforce.ops.scatter import one_cotangent
from gnnforce.quantities import QUANTITIES
from gnnforce.readouts.head import OutputTable
from gnnforce.readouts.pools import Pools
from gnnforce.readouts.stack import Outputs

if TYPE_CHECKING:
    from gnnforce.models.force_field import ForceField

LAYERS = 3  # of a backbone that is not made of MessagePassing modules; for estimates only


@dataclass(frozen=True)
class Request:
    """What is wanted of a graph; the arguments of ``ForceField.predict``."""

    names: tuple[str, ...]
    table: OutputTable
    weights: Weights | None
    strategy: str
    create_graph: bool
    memory: float | str | None

    @property
    def derivatives(self) -> bool:
        """Something that is a derivative is wanted."""
        return any(QUANTITIES[name].derivative for name in self.names)

    @property
    def forces(self) -> bool:
        """Forces are wanted."""
        return "forces" in self.names

    @property
    def virial(self) -> bool:
        """Stress or virial are wanted."""
        return "stress" in self.names or "virial" in self.names

    @property
    def n_rows(self) -> int:
        """Outputs or combinations to differentiate."""
        return self.table.n_outputs if self.weights is None else count(self.weights)


def evaluate(
    model: "ForceField", graph: AtomGraph, request: Request
) -> tuple[dict[str, Tensor], Choice]:
    """Compute what is wanted, and say how.

    Returns:
        Quantities by name, at least the ones wanted, and the choice of strategy.
    """
    vectors = edge_vectors(graph).detach()
    leaf = vectors.to(model.dtype).requires_grad_(request.derivatives)
    if not request.derivatives:
        check_strategy(request.strategy, options_of(model.backbone))
        with one_cotangent():
            out = model(graph, leaf, request.table, frozen=not request.create_graph)
        choice = Choice(request.strategy, "none", 0, 0, "no derivative was asked for")
        return {"energy": out.energy, "energies": out.energies}, choice
    pools, n_pooled = pools_for(
        model.readouts, request.table, model.backbone.n_features, request.weights
    )
    work = workload(model, graph, request, n_pooled)
    used, reason = choose(request.strategy, work, constants_of(model))
    if used == "jacobian":
        reason = f"{reason}; {describe(pools, request.table)}"
    per_piece = rows_per_piece(used, work)
    task = Task(
        model,
        graph,
        vectors,
        leaf,
        table=request.table,
        weights=request.weights,
        create_graph=request.create_graph,
        forces=request.forces,
        virial=request.virial,
        per_piece=per_piece,
        memory=work.memory,
        shared=None,
    )
    out, slopes = run(task, used, engine_of(used, work), pools)
    passes = passes_of(used, work)
    choice = Choice(request.strategy, used, passes, -(-passes // per_piece), reason)
    values = {"energy": out.energy, "energies": out.energies}
    return values | finish(slopes, graph), choice


def run(task: Task, strategy: str, engine: str, pools: Pools) -> tuple[Outputs, Slopes]:
    """Differentiate by a strategy; what outputs share is differentiated once."""
    if strategy == "loop":
        return by_loop(task)
    repulsion = repulsion_of(task)
    if repulsion is not None:
        task = replace(task, shared=repulsion[0])
    if strategy == "forward":
        out, slopes = by_forward(task)
    elif strategy == "jacobian":
        out, slopes = by_jacobian(task, engine, pools)
    else:
        out, slopes = by_nodes(task, engine)
    return out, slopes if repulsion is None else add_shared(
        task, out, slopes, repulsion[1]
    )


def by_loop(task: Task) -> tuple[Outputs, Slopes]:
    """Differentiate the energy of one output after the other: the reference."""
    again = task.create_graph and task.model.backbone.checkpointing
    with one_cotangent(), recomputing(again):
        out = task.model(task.graph, task.leaf, task.table, frozen=not task.create_graph)
    return out, pulled(task, "loop", out.energy, cotangents_of(task, out.energy))


def cotangents_of(task: Task, energy: Tensor) -> Tensor:
    """Return the weights, or one cotangent an output that all graphs share.

    Returns:
        Shape ``(n_rows, n_outputs, n_graphs)``.
    """
    if task.weights is not None:
        return weights_of(task.weights, energy, task.table)
    unit = torch.eye(energy.shape[0], dtype=energy.dtype, device=energy.device)
    return unit[:, :, None].expand(*unit.shape, energy.shape[1])


def repulsion_of(task: Task) -> tuple[Tensor, Slopes] | None:
    """Return the repulsion of every atom and its forces and virial, or None without.

    It has no parameters, so that its slopes are constants for training.
    """
    vectors = task.leaf.detach().requires_grad_()
    with one_cotangent():
        energy = task.model.repulsion_energy(task.graph, vectors)
        if energy is None:
            return None
        seeds = torch.ones_like(energy)[None]
        rows = pull_back(energy, vectors, seeds, strategy="loop")
    return energy.detach(), slopes_of_edges(task, rows)


def add_shared(task: Task, out: Outputs, slopes: Slopes, shared: Slopes) -> Slopes:
    """Add the slopes of the repulsion to every output that contains it.

    An output contains it once, a combination as often as its ``node_sum`` outputs weigh.
    """
    contains = torch.cat(
        [
            # made on the device: a list of numbers would be copied there, and waited for
            task.vectors.new_full((head.members,), float(head.kind == "node_sum"))
            for head in task.table.heads
        ]
    )  # (n_outputs,)
    if task.weights is None:
        factors = contains[:, None].expand(-1, task.graph.n_graphs)
    else:
        weights = weights_of(task.weights, out.energy, task.table)
        factors = torch.einsum("cng,n->cg", weights.to(contains.dtype), contains)
    index = task.graph.graph_index
    result = dict(slopes)
    if task.forces:
        of_atoms = factors.index_select(1, index)[:, :, None]  # (n_rows, n_atoms, 1)
        result["forces"] = slopes["forces"] + of_atoms * shared["forces"]
    if task.virial:
        result["virial"] = slopes["virial"] + factors[:, :, None, None] * shared["virial"]
    return result


def finish(slopes: Slopes, graph: AtomGraph) -> Slopes:
    """Add the stress to a virial; both are zero for graphs that have none."""
    if "virial" not in slopes:
        return slopes
    exists = has_stress(graph)[:, None, None]
    virial = slopes["virial"]
    virial = torch.where(exists, virial, torch.zeros_like(virial))
    volume = volumes(graph)[:, None, None]
    stress = -virial / torch.where(exists, volume, torch.ones_like(volume))
    return slopes | {"virial": virial, "stress": stress}


def constants_of(model: "ForceField") -> Constants:
    """Return the cost model's constants for a model where it is."""
    return constants_for(model.device, type(model.backbone).__name__)


def options_of(backbone: Backbone) -> tuple[str, ...]:
    """Return the strategies that a backbone supports, the plainest first."""
    chain = backbone.can_chain()
    return tuple(name for name in OF_MODELS if name != "chain" or chain)


def only_loop(strategy: str) -> tuple[str, ...]:
    """Return the one strategy that activation checkpointing has.

    Raises:
        UserError: For another one, with the remedy.
    """
    if strategy in OF_MODELS and strategy != "loop":
        raise UserError(
            f"strategy {strategy!r} cannot recompute layers: use strategy='loop' or 'auto', "
            "or switch activation checkpointing off (model.backbone.checkpointing = False)"
        )
    return ("loop",)


_n_layers: WeakKeyDictionary[Backbone, int] = WeakKeyDictionary()


def _count_layers(backbone: Backbone) -> int:
    """Count message-passing layers, once: walking over modules takes as long as one does."""
    if backbone not in _n_layers:
        parts = backbone.modules()
        _n_layers[backbone] = sum(isinstance(part, MessagePassing) for part in parts)
    return _n_layers[backbone]


def workload(
    model: "ForceField", graph: AtomGraph, request: Request, n_pooled: int
) -> Workload:
    """Describe a request to the cost model."""
    backbone = model.backbone
    n_layers = _count_layers(backbone)
    options = options_of(backbone)
    if request.create_graph and backbone.checkpointing:
        options = only_loop(request.strategy)
    trusted = options
    if not backbone.chained:  # nobody knows whether its operations have forward rules
        trusted = tuple(name for name in options if name != "forward")
    return Workload(
        n_rows=request.n_rows,
        n_atoms=graph.n_atoms,
        n_edges=graph.n_edges,
        n_features=backbone.n_features,
        n_layers=n_layers or LAYERS,
        n_pooled=n_pooled,
        n_directions=n_directions(
            graph,
            forces=request.forces,
            virial=request.virial,
            may_wait=request.strategy == "forward",
        ),
        options=options,
        automatic=trusted,
        itemsize=model.dtype.itemsize,
        create_graph=request.create_graph,
        memory=memory_limit(request.memory),
    )
