"""The graph of one structure, and of a batch of structures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

if TYPE_CHECKING:
    from ase import Atoms


class AtomGraph(Data):  # type: ignore[misc]  # Data carries no types
    """Atoms and their neighbors, as a ``torch_geometric`` ``Data``.

    Tensors with one value a structure carry a leading axis of one, so that batching is
    concatenation along the first axis for everything. Only ``edge_index`` is shifted
    by the number of atoms before it; PyG's rule, which shifts every field whose name
    contains "index" or "batch", does not apply here.

    Attributes:
        numbers: Atomic numbers, int64, shape ``(n_atoms,)``.
        positions: In Angstrom, shape ``(n_atoms, 3)``.
        cell: Rows are lattice vectors in Angstrom, shape ``(n_graphs, 3, 3)``; the
            user's own, zeros where there is none.
        pbc: Periodic directions, bool, shape ``(n_graphs, 3)``.
        edge_index: Row 0 the source ``j``, row 1 the target ``i``, sorted by target,
            int64, shape ``(2, n_edges)``.
        edge_shifts: Whole numbers ``s`` of lattice vectors, so that an edge vector is
            ``positions[j] + s @ cell - positions[i]``, shape ``(n_edges, 3)``.
        charge: Total charge in e, shape ``(n_graphs,)``.
        spin_multiplicity: 2S + 1, shape ``(n_graphs,)``.
        cutoff: Radius in Angstrom within which all neighbors are edges, float64, shape
            ``(n_graphs,)``; a model refuses a graph made for a smaller one than its own.

    Example:
        >>> from ase.build import molecule
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), cutoff=5.0)
        >>> graph.n_atoms, graph.n_edges, graph.n_graphs
        (3, 6, 1)
    """

    numbers: Tensor
    positions: Tensor
    cell: Tensor
    pbc: Tensor
    edge_index: Tensor
    edge_shifts: Tensor
    charge: Tensor
    spin_multiplicity: Tensor
    cutoff: Tensor

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401
        super().__init__(**fields)
        if "numbers" in fields:
            # PyG would guess the number from the edges and lose atoms without any
            self.num_nodes = int(fields["numbers"].shape[0])

    @classmethod
    def from_atoms(
        cls, atoms: Atoms, cutoff: float, dtype: torch.dtype = torch.float64
    ) -> AtomGraph:
        """Build the graph of an ``ase.Atoms``; see ``graph_from_atoms``."""
        from gnnforce.graph.convert import graph_from_atoms  # noqa: PLC0415  (cycle)

        return graph_from_atoms(atoms, cutoff, dtype)

    @property
    def n_atoms(self) -> int:
        """Number of atoms, of all structures together."""
        return int(self.numbers.shape[0])

    @property
    def n_edges(self) -> int:
        """Number of directed edges, of all structures together."""
        return int(self.edge_index.shape[1])

    @property
    def n_graphs(self) -> int:
        """Number of structures."""
        return int(self.cell.shape[0])

    @property
    def graph_index(self) -> Tensor:
        """The structure each atom belongs to, int64, shape ``(n_atoms,)``."""
        batch: Tensor | None = self._store.get("batch")
        return torch.zeros_like(self.numbers) if batch is None else batch

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Shift ``edge_index`` and nothing else when batching."""
        return self.n_atoms if key == "edge_index" else 0

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Concatenate every field along its first axis, ``edge_index`` its last."""
        return -1 if key == "edge_index" else 0
