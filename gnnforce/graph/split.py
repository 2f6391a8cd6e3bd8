"""A batch back into its structures."""

import torch

from gnnforce.graph.atom_graph import AtomGraph

OF_GRAPHS = ("cell", "pbc", "charge", "spin_multiplicity", "cutoff")
OF_ATOMS = ("numbers", "positions")


def split(graph: AtomGraph) -> list[AtomGraph]:
    """Part a batch into its graphs, the inverse of :func:`~gnnforce.graph.batch.batch`.

    Only what an :class:`AtomGraph` is made of is taken along: labels stay behind.

    Args:
        graph: A graph or a batch.

    Returns:
        One graph a structure, without ``batch`` and ``ptr``, on the same device.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.graph.batch import batch
        >>> names = ["H2O", "CO"]
        >>> both = batch([AtomGraph.from_atoms(molecule(n), 5.0) for n in names])
        >>> [one.n_atoms for one in split(both)]
        [3, 2]
    """
    index = graph.graph_index
    of_edges = index.index_select(0, graph.edge_index[1])
    place = torch.empty_like(index)  # of every atom in its own graph
    parts = []
    for number in range(graph.n_graphs):
        atoms = torch.where(index == number)[0]
        edges = torch.where(of_edges == number)[0]
        place[atoms] = torch.arange(len(atoms), device=index.device)
        fields = {name: graph[name].index_select(0, atoms) for name in OF_ATOMS}
        fields |= {
            name: graph[name][number : number + 1] for name in OF_GRAPHS if name in graph
        }
        parts.append(
            AtomGraph(
                **fields,
                edge_index=place[graph.edge_index.index_select(1, edges)],
                edge_shifts=graph.edge_shifts.index_select(0, edges),
            )
        )
    return parts
