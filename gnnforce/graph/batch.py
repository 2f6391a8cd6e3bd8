"""Many structures as one graph without edges between them."""

from collections.abc import Sequence

from torch_geometric.data import Batch

from gnnforce.errors import DataError
from gnnforce.graph.atom_graph import AtomGraph


def batch(graphs: Sequence[AtomGraph]) -> AtomGraph:
    """Join structures into one batch.

    Args:
        graphs: At least one graph, all with the same fields and dtype.

    Returns:
        A PyG ``Batch`` that is also an :class:`AtomGraph`: the same fields,
        concatenated, plus ``batch`` and ``ptr``.

    Raises:
        DataError: For an empty list, or graphs with different fields.

    Example:
        >>> from ase.build import molecule
        >>> names = ["H2O", "CO"]
        >>> both = batch([AtomGraph.from_atoms(molecule(n), 5.0) for n in names])
        >>> both.n_graphs, both.graph_index.tolist()
        (2, [0, 0, 0, 1, 1])
    """
    if len(graphs) == 0:
        raise DataError("a batch needs at least one graph")
    fields = set(graphs[0].keys())
    for number, graph in enumerate(graphs):
        if set(graph.keys()) != fields:
            odd = ", ".join(sorted(fields ^ set(graph.keys())))
            raise DataError(f"graph {number} differs from graph 0 in the fields {odd}")
    joined: AtomGraph = Batch.from_data_list(list(graphs))
    return joined
