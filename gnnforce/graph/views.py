"""What can be read off a graph: edge vectors, volumes, which graphs have a stress."""

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.ops.scatter import gather, scatter_sum

FLAT = 1e-6  # of the volume of a box with the same edges; below it a cell is flat


def edge_vectors(graph: AtomGraph) -> Tensor:
    r"""Return the vector from target to source of every edge.

    .. math:: r_{e} = R_{j} + s_e\,A - R_{i}

    Args:
        graph: A graph or a batch.

    Returns:
        In Angstrom, in the dtype of the positions, shape ``(n_edges, 3)``.

    Example:
        >>> from ase import Atoms
        >>> graph = AtomGraph.from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, 0.74]]), 5.0)
        >>> edge_vectors(graph)[:, 2].tolist()
        [0.74, -0.74]
    """
    source, target = graph.edge_index
    vectors = gather(graph.positions, source) - gather(graph.positions, target)
    cells = gather(graph.cell, edge_graphs(graph))  # (n_edges, 3, 3)
    return vectors + torch.bmm(graph.edge_shifts[:, None, :], cells)[:, 0]


def edge_graphs(graph: AtomGraph) -> Tensor:
    """Return the structure that each edge belongs to, shape ``(n_edges,)``."""
    return graph.graph_index.index_select(0, graph.edge_index[1])


def volumes(graph: AtomGraph) -> Tensor:
    """Return ``abs(det(cell))`` in cubic Angstrom, shape ``(n_graphs,)``."""
    return torch.linalg.det(graph.cell).abs()


def has_stress(graph: AtomGraph) -> Tensor:
    """Tell which structures have a stress: periodic somewhere, and a volume.

    Lattice vectors in one plane have a determinant of rounding errors, not of zero; they
    span no volume either.

    Returns:
        Bool, shape ``(n_graphs,)``.
    """
    box = torch.linalg.vector_norm(graph.cell, dim=-1).prod(dim=-1)  # (n_graphs,)
    return graph.pbc.any(dim=1) & (volumes(graph) > FLAT * box)


def forces_from_edges(gradients: Tensor, graph: AtomGraph) -> Tensor:
    r"""Sum energy gradients of edge vectors to forces.

    .. math:: F_i = \sum_{e:\,\mathrm{target}=i} g_e - \sum_{e:\,\mathrm{source}=i} g_e,
              \qquad g_e = \partial E / \partial r_e

    Args:
        gradients: In eV/Angstrom, shape ``(n_outputs, n_edges, 3)``.
        graph: The graph or batch of the edges.

    Returns:
        In eV/Angstrom, shape ``(n_outputs, n_atoms, 3)``.
    """
    source, target = graph.edge_index
    by_edge = gradients.permute(1, 2, 0)  # (n_edges, 3, n_outputs)
    forces = scatter_sum(by_edge, target, graph.n_atoms)
    forces = forces - scatter_sum(by_edge, source, graph.n_atoms)
    return forces.permute(2, 0, 1)


def virials_from_edges(gradients: Tensor, vectors: Tensor, graph: AtomGraph) -> Tensor:
    r"""Sum energy gradients of edge vectors to virials.

    .. math:: W = -\sum_e \tfrac12 (r_e \otimes g_e + g_e \otimes r_e)

    which is minus the derivative with respect to a symmetric strain, so that
    ``virial = -volume * stress``.

    Args:
        gradients: In eV/Angstrom, shape ``(n_outputs, n_edges, 3)``.
        vectors: Edge vectors in Angstrom, shape ``(n_edges, 3)``.
        graph: The graph or batch of the edges.

    Returns:
        In eV, shape ``(n_outputs, n_graphs, 3, 3)``.
    """
    by_edge = gradients.transpose(0, 1)  # (n_edges, n_outputs, 3)
    products = by_edge[:, :, :, None] * vectors[:, None, None, :]
    strain = scatter_sum(products, edge_graphs(graph), graph.n_graphs).transpose(0, 1)
    return -0.5 * (strain + strain.transpose(-1, -2))
