"""Structures between two structures of the same atoms."""

import numpy as np
import torch
from torch import Tensor

from gnnforce.errors import GeometryError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.neighbors import neighbor_list
from gnnforce.graph.split import split

SAME = ("numbers", "cell", "pbc", "charge", "spin_multiplicity")


def interpolate(
    first: AtomGraph, second: AtomGraph, at: Tensor, cutoff: float
) -> AtomGraph:
    r"""Return structures on the straight lines between two sets of structures.

    .. math:: R_i(t) = R_i + t\,\big(R'_i - R_i - s_i A\big)

    Along periodic directions an atom goes to the image of its end that is nearest in
    fractional coordinates (whole numbers :math:`s_i`), so that it does not matter whether
    structures are wrapped into their cell. Neighbors are searched anew for every
    structure in between, on the CPU: the list is exact at any ``t``, whatever comes close
    on the way. Molecules are not turned or moved first.

    Args:
        first: A graph or batch.
        second: The same atoms in the same order, cells, charges and spins.
        at: ``t`` of every structure, shape ``(n_graphs,)``; 0 is ``first``, 1 ``second``.
        cutoff: Radius of the neighbor list in Angstrom.

    Returns:
        A batch in the dtype and on the device of ``first``.

    Raises:
        GeometryError: When the structures are not of the same atoms, or atoms meet on
            the way.
        UserError: When ``at`` has another shape.

    Example:
        >>> from ase import Atoms
        >>> ends = [AtomGraph.from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, z]]), 2.0)
        ...         for z in (1.0, 5.0)]
        >>> [interpolate(*ends, torch.tensor([t]), 2.0).n_edges for t in (0.2, 0.5)]
        [2, 0]
    """
    _check(first, second, at)
    ends = zip(split(first), split(second), at.detach().double().tolist(), strict=True)
    parts = [_one(*end, cutoff) for end in ends]
    device, dtype = first.positions.device, first.positions.dtype
    counts = torch.tensor([part.n_atoms for part in parts])
    starts = np.concatenate([[0], np.cumsum(counts.numpy())[:-1]]).tolist()
    fields = {
        name: torch.cat([part[name] for part in parts])
        for name in ("numbers", "positions", "edge_shifts", *SAME[1:])
    }
    edges = [part.edge_index + s for part, s in zip(parts, starts, strict=True)]
    floats = {
        name: x.to(device, dtype if x.is_floating_point() else x.dtype)
        for name, x in fields.items()
    }
    return AtomGraph(
        **floats,
        edge_index=torch.cat(edges, dim=1).to(device),
        cutoff=torch.full((len(parts),), cutoff, dtype=torch.float64, device=device),
        batch=torch.repeat_interleave(torch.arange(len(parts)), counts).to(device),
    )


def _one(start: AtomGraph, end: AtomGraph, t: float, cutoff: float) -> AtomGraph:
    cell = start.cell[0].detach().double().cpu().numpy()
    pbc = start.pbc[0].cpu().numpy()
    begin = start.positions.detach().double().cpu().numpy()
    step = end.positions.detach().double().cpu().numpy() - begin
    periodic = cell[pbc]  # (n_periodic, 3)
    if len(periodic) and len(step):
        fractional = step @ np.linalg.pinv(periodic)  # (n_atoms, n_periodic)
        step = step - np.round(fractional) @ periodic
    positions = begin + t * step
    edges = neighbor_list(positions, cell, pbc, cutoff)
    return AtomGraph(
        numbers=start.numbers.cpu(),
        positions=torch.from_numpy(positions),
        edge_index=torch.from_numpy(np.stack([edges.source, edges.target])),
        edge_shifts=torch.from_numpy(edges.shifts).double(),
        **{name: start[name].detach().cpu() for name in SAME[1:]},
    )


def _check(first: AtomGraph, second: AtomGraph, at: Tensor) -> None:
    """Raise for structures that no straight line connects."""
    if first.n_graphs != second.n_graphs:
        raise GeometryError(
            f"there are {first.n_graphs} structures at one end and {second.n_graphs} at "
            "the other; give pairs"
        )
    if at.shape != (first.n_graphs,):
        raise UserError(
            f"at must have the shape ({first.n_graphs},), one part of the way for each "
            f"structure, not {tuple(at.shape)}"
        )
    if not torch.equal(first.graph_index, second.graph_index):
        raise GeometryError("the two ends differ in their numbers of atoms")
    for name in SAME:
        one, other = first[name], second[name]
        same = one == other
        if one.is_floating_point():
            same = torch.isclose(one, other.to(one.dtype), rtol=1e-6, atol=1e-8)
        if not bool(same.all()):
            what = "atomic numbers" if name == "numbers" else name.replace("_", " ")
            raise GeometryError(
                f"the two ends differ in their {what}; a path connects structures of the "
                "same atoms in the same order, cell, charge and spin"
            )
