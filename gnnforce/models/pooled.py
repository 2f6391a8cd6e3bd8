"""Strategy ``jacobian``: pull pooled features back instead of outputs."""

import torch
from torch import Tensor

from gnnforce.derivatives.jacobian import contract_pooled
from gnnforce.derivatives.loop import loop_pull_back
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.combinations import Weights, count, weights_of
from gnnforce.models.stages import (
    Slopes,
    Task,
    by_nodes,
    features_of,
    node_cotangents,
    pulled,
)
from gnnforce.ops.scatter import one_cotangent
from gnnforce.readouts.head import OutputTable
from gnnforce.readouts.pools import (
    Pools,
    column_cotangents,
    column_slopes,
    is_linear,
    pools_of,
    pools_of_all,
)
from gnnforce.readouts.stack import Features, HeadStack, Outputs, pooled_features


def pools_for(
    stack: HeadStack, table: OutputTable, n_features: int, weights: Weights | None
) -> tuple[Pools, int]:
    """Return the pools, and the pull-backs that the strategy needs.

    Combinations go through pools when these serve every output and are fewer.
    """
    if weights is None:
        pools = pools_of(stack, table, n_features)
        served = sum(head.members for head in pools.heads)
        return pools, table.n_outputs - served + pools.n_columns
    every = pools_of_all(stack, table, n_features)
    n_rows = count(weights)
    if every is not None and every.n_columns < n_rows:
        return every, every.n_columns
    return Pools((), (), (), 0, n_features), n_rows


def describe(pools: Pools, table: OutputTable) -> str:
    """Say which heads go through pooled features, and why the others do not."""
    served = [head.name for head in pools.heads]
    deep = [h.name for h in table.heads if h.kind != "pooled" and not is_linear(h)]
    few = [h.name for h in table.heads if h.name not in (*served, *deep)]
    parts = []
    if served:
        parts.append(f"{', '.join(served)} through {pools.n_columns} pooled features")
    if deep:
        parts.append(
            f"{', '.join(deep)} not a function of pooled features, so one pull-back each row"
        )
    if few:
        parts.append(
            f"{', '.join(few)} with no more rows than features, pulled back as is"
        )
    return "; ".join(parts)


def by_jacobian(task: Task, engine: str, pools: Pools) -> tuple[Outputs, Slopes]:
    """Differentiate pooled features, and multiply with the slopes of outputs in them."""
    if not pools.heads:
        return by_nodes(task, engine)
    features = features_of(task, engine)
    stack, graph = task.model.readouts, task.graph
    own = (
        features
        if task.create_graph
        else features._replace(atoms=features.atoms.detach())
    )
    with one_cotangent():
        out = stack(own, graph, task.shared, task.table)
    rest = [head.name for head in task.table.heads if head not in pools.heads]
    cotangents = [column_cotangents(pools, stack, graph, features.atoms)]
    if rest:
        direct = task.table.select(rest)
        cotangents.insert(0, node_cotangents(task, features, direct)[1])
    rows = pulled(task, engine, features.atoms, torch.cat(cotangents))
    with one_cotangent():
        of_pooled = pooled_slopes(task, own, pools)
    slopes = column_slopes(pools, stack, graph, of_pooled)
    return out, {
        name: joined(task, out, rows[name], slopes, rest, index)
        for name, index in row_graphs(graph).items()
        if name in rows
    }


def row_graphs(graph: AtomGraph) -> dict[str, Tensor]:
    """Return the graph of every row of a quantity."""
    each = torch.arange(graph.n_graphs, device=graph.numbers.device)
    return {"forces": graph.graph_index, "virial": each}


def pooled_slopes(task: Task, features: Features, pools: Pools) -> Tensor | None:
    """Differentiate the ``pooled`` heads with respect to summed features."""
    if not pools.pooled:
        return None
    stack, graph = task.model.readouts, task.graph
    sums = pooled_features(features, graph, stack.elements(graph.numbers))
    if not task.create_graph or not sums.requires_grad:
        sums = sums.detach()
    n_outputs = sum(head.members for head in pools.pooled)
    copies = sums.expand(n_outputs, *sums.shape)
    if not copies.requires_grad:
        copies.requires_grad_()
    energy = stack.of_pooled(copies, graph, pools.pooled)
    seeds = torch.ones_like(energy)[None]
    return loop_pull_back(energy, copies, seeds, task.create_graph)[0]


def joined(  # noqa: PLR0917  (the steps of one assembly)
    task: Task,
    out: Outputs,
    rows: Tensor,
    slopes: dict[str, Tensor],
    rest: list[str],
    index: Tensor,
) -> Tensor:
    """Contract columns with slopes, and put outputs into their order."""
    served = [name for name in task.table.names if name in slopes]
    if task.weights is not None:  # every head is served
        every = torch.cat([slopes[name] for name in served])
        weights = weights_of(task.weights, out.energy, task.table).to(every.dtype)
        mixed = torch.einsum("cng,ngt->cgt", weights, every)
        return contract_pooled(mixed.to(rows.dtype), rows, index, task.memory)
    n_direct = rows.shape[0] - slopes[served[0]].shape[2]
    direct, columns = rows.split([n_direct, rows.shape[0] - n_direct])
    every = torch.cat([slopes[name] for name in served]).to(rows.dtype)
    through = contract_pooled(every, columns, index, task.memory)
    parts = dict(zip(served, split_heads(through, task.table, served), strict=True))
    parts |= dict(zip(rest, split_heads(direct, task.table, rest), strict=True))
    return torch.cat([parts[name] for name in task.table.names])


def split_heads(rows: Tensor, table: OutputTable, names: list[str]) -> list[Tensor]:
    """Split rows by head."""
    return list(rows.split([table.head(name).members for name in names]))
