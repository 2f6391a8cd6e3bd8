"""Neighbor lists that are reused while no atom has moved far (Verlet's skin)."""

from copy import copy

import numpy as np
import torch
from ase import Atoms
from torch import Tensor

from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.convert import graph_from_atoms, spin_multiplicity, total_charge
from gnnforce.graph.neighbors import CLOSEST_PAIR
from gnnforce.graph.views import edge_vectors


class SkinList:
    r"""Makes the float64 graphs of a calculator, searching for neighbors when it must.

    A list made for ``cutoff + skin`` holds every pair within ``cutoff`` as long as

    .. math:: \max_i |R_i - R_i^{\mathrm{list}}| < \mathrm{skin} / 2 .

    Pairs beyond the cutoff are taken out again, so a graph is the same whether the list
    was reused or not. Displacements are those of the coordinates as given: atoms that
    were folded back into the cell lead to a new list, not to a wrong one.

    Args:
        cutoff: Of the model, in Angstrom.
        skin: In Angstrom; 0 makes a new list each time.

    Raises:
        UserError: For a skin that is negative or not finite.

    Example:
        >>> from ase.build import molecule
        >>> lists = SkinList(cutoff=5.0, skin=1.0)
        >>> lists.graph(molecule("H2O")).n_edges, lists.graph(molecule("H2O")).n_edges
        (6, 6)
        >>> lists.n_searches
        1
    """

    def __init__(self, cutoff: float, skin: float = 0.0) -> None:
        if not (np.isfinite(skin) and skin >= 0):
            raise UserError(f"skin must be a number >= 0 in Angstrom, not {skin}")
        self.cutoff = float(cutoff)
        self.skin = float(skin)
        self.n_searches = 0
        self._list: AtomGraph | None = None
        self._last: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def graph(self, atoms: Atoms) -> AtomGraph:
        """Return the graph of a structure.

        Args:
            atoms: The structure; it is not changed.

        Returns:
            The same graph as ``AtomGraph.from_atoms(atoms, cutoff)``.

        Raises:
            GeometryError: See :func:`gnnforce.graph.neighbors.neighbor_list`.
        """
        if self._list is not None and self._reusable(self._list, atoms):
            graph = self._within(self._list, atoms)
            if graph is not None:
                return graph
        self.n_searches += 1
        listed = graph_from_atoms(atoms, self.cutoff + self.skin)
        if self.skin == 0.0:
            return listed
        self._list = listed
        return self._select(listed, edge_vectors(listed).norm(dim=1) < self.cutoff)

    def _reusable(self, listed: AtomGraph, atoms: Atoms) -> bool:
        same = (
            np.array_equal(listed.numbers.numpy(), atoms.numbers)
            and np.array_equal(listed.pbc[0].numpy(), atoms.pbc)
            and np.array_equal(listed.cell[0].numpy(), atoms.cell.array)
        )
        if not same or len(atoms) == 0:
            return False
        moved = np.linalg.norm(atoms.positions - listed.positions.numpy(), axis=1)
        return bool(moved.max() < self.skin / 2)  # False for nan: searched and refused

    def _within(self, listed: AtomGraph, atoms: Atoms) -> AtomGraph | None:
        moved = copy(listed)
        moved.positions = torch.from_numpy(np.array(atoms.positions, dtype=np.float64))
        moved.charge = torch.tensor([total_charge(atoms)], dtype=torch.float64)
        spin = spin_multiplicity(atoms)
        moved.spin_multiplicity = torch.tensor([spin], dtype=torch.float64)
        lengths = edge_vectors(moved).norm(dim=1)
        if (lengths < CLOSEST_PAIR).any():
            return None  # a new search names the pair
        return self._select(moved, lengths < self.cutoff)

    def _select(self, graph: AtomGraph, keep: Tensor) -> AtomGraph:
        """Take some of the edges; the same tensors as last time for the same edges.

        What a model derives from edges alone is then not derived again.
        """
        selected = copy(graph)
        last = self._last
        if last is None or last[0] is not graph.edge_index or not last[1].equal(keep):
            edges, shifts = graph.edge_index[:, keep], graph.edge_shifts[keep]
            self._last = last = graph.edge_index, keep, edges, shifts
        selected.edge_index, selected.edge_shifts = last[2:]
        return selected
