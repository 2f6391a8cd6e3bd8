"""Forward mode: tangents of coordinates, all graphs of a batch at once."""

from collections.abc import Callable
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnforce.derivatives.support import explained
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.ops.scatter import scatter_sum

STRAINS = 6  # independent components of a symmetric matrix
# of a (3, 3) matrix: xx, yy, zz, yz, xz, xy
_ROWS = (0, 1, 2, 1, 0, 0)
_COLUMNS = (0, 1, 2, 2, 2, 1)


class Places(NamedTuple):
    """Where each atom stands in its own graph.

    Attributes:
        local: Number of every atom in its graph, shape ``(n_atoms,)``.
        graph: Its graph, shape ``(n_atoms,)``.
        most: Atoms of the largest graph.
    """

    local: Tensor
    graph: Tensor
    most: int

    @property
    def n_directions(self) -> int:
        """Cartesian coordinates of the largest graph."""
        return 3 * self.most


def places_of(graph: AtomGraph, most: int) -> Places:
    """Number the atoms of every graph from zero.

    Args:
        graph: A graph or batch, atoms of a graph side by side.
        most: Atoms of the largest graph.
    """
    index = graph.graph_index
    counts = scatter_sum(torch.ones_like(index), index, graph.n_graphs)
    first = counts.cumsum(0) - counts  # (n_graphs,)
    steps = torch.arange(graph.n_atoms, device=index.device)
    return Places(steps - first.index_select(0, index), index, most)


def tangents_of(
    graph: AtomGraph, vectors: Tensor, places: Places, numbers: Tensor
) -> Tensor:
    r"""Return how the edge vectors change along some directions.

    Direction :math:`3a + c` moves coordinate ``c`` of atom ``a`` of every graph, so that
    an edge changes by :math:`t_j - t_i`; the last six strain every graph,
    :math:`r \varepsilon`. Graphs do not see each other, so moving all of them at once
    costs what moving one does.

    Args:
        graph: The graph or batch.
        vectors: Edge vectors, shape ``(n_edges, 3)``.
        places: Of its atoms.
        numbers: Of the directions, shape ``(n_directions,)``.

    Returns:
        Shape ``(n_directions, n_edges, 3)``.
    """
    n_moves = places.n_directions
    source, target = graph.edge_index
    atom = torch.div(numbers, 3, rounding_mode="floor")[:, None]  # (n_directions, 1)
    ahead = (places.local.index_select(0, source) == atom).to(vectors.dtype)
    behind = (places.local.index_select(0, target) == atom).to(vectors.dtype)
    unit = torch.eye(3, dtype=vectors.dtype, device=vectors.device)
    axis = unit.index_select(0, numbers % 3)  # (n_directions, 3)
    moved = (ahead - behind)[:, :, None] * axis[:, None, :]
    strain = (numbers - n_moves).clamp(min=0)
    strained = vectors @ strains(vectors).index_select(0, strain)
    return torch.where((numbers < n_moves)[:, None, None], moved, strained)


def strains(like: Tensor) -> Tensor:
    """Return the six symmetric strains of unit size, shape ``(6, 3, 3)``."""
    unit = torch.eye(3, dtype=like.dtype, device=like.device)
    matrices = [
        0.5 * (torch.outer(unit[i], unit[j]) + torch.outer(unit[j], unit[i]))
        for i, j in zip(_ROWS, _COLUMNS, strict=True)
    ]
    return torch.stack(matrices)


# PyTorch counts levels of forward mode for the process, not for a thread
_one_at_a_time = RLock()


def push_forward(
    function: Callable[[Tensor], Tensor], point: Tensor, tangents: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Return a function's value and its derivative along many directions.

    .. math:: T_k = \sum_x \frac{\partial f}{\partial x}\, t_{kx}

    One ``vmap`` over ``torch.func.jvp``: the value is computed once. Gradients with
    respect to parameters flow through both.

    Args:
        function: Of one tensor, to one tensor.
        point: Where, any shape.
        tangents: Shape ``(n_directions, *point.shape)``.

    Returns:
        The value, and shape ``(n_directions, *value.shape)``.

    Raises:
        UserError: When an operation has no forward-mode rule.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> push_forward(lambda x: x**2, x, torch.eye(2))
        (tensor([1., 4.]), tensor([[2., 0.],
                [0., 4.]]))
    """

    def one(tangent: Tensor) -> tuple[Tensor, Tensor]:
        value, row = torch.func.jvp(function, (point,), (tangent,))[:2]
        return value, row

    # the value does not depend on the tangent, which PyTorch's annotation leaves out
    out_dims: Any = (None, 0)
    with _one_at_a_time, explained("forward"):
        value, rows = torch.func.vmap(one, out_dims=out_dims)(tangents)
    return value, rows


def contract_nodes(cotangents: Tensor, tangents: Tensor, graph: AtomGraph) -> Tensor:
    r"""Contract node cotangents of outputs with node tangents of directions.

    .. math:: D_{ngk} = \sum_{i \in g} \sum_f C_{nif}\, T_{kif}

    Args:
        cotangents: ``C``, shape ``(n_outputs, n_atoms, n_features)``.
        tangents: ``T``, shape ``(n_directions, n_atoms, n_features)``.
        graph: The graph or batch of the atoms.

    Returns:
        Shape ``(n_outputs, n_graphs, n_directions)``.
    """
    if graph.n_graphs == 1:
        return (cotangents.flatten(1) @ tangents.flatten(1).T)[:, None, :]
    by_atom = torch.bmm(cotangents.transpose(0, 1), tangents.permute(1, 2, 0))
    return scatter_sum(by_atom, graph.graph_index, graph.n_graphs).transpose(0, 1)


def forces_from_directions(slopes: Tensor, places: Places) -> Tensor:
    """Sort slopes of all graphs' coordinates to the atoms.

    Args:
        slopes: Shape ``(n_outputs, n_graphs, n_directions)``, coordinates first.
        places: Of the atoms.

    Returns:
        Forces, shape ``(n_outputs, n_atoms, 3)``.
    """
    moves = slopes[:, :, : places.n_directions]
    table = moves.unflatten(2, (places.most, 3)).flatten(1, 2)
    return -table.index_select(1, places.graph * places.most + places.local)


def virials_from_directions(slopes: Tensor) -> Tensor:
    """Make matrices of the slopes along six strains, which come last.

    Returns:
        Virials, symmetric, shape ``(n_outputs, n_graphs, 3, 3)``.
    """
    six = slopes[:, :, -STRAINS:]
    full = [0, 5, 4, 5, 1, 3, 4, 3, 2]  # components of a matrix, row by row
    return -torch.stack([six[:, :, k] for k in full], dim=-1).unflatten(-1, (3, 3))
