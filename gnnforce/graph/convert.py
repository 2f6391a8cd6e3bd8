"""From and to ``ase.Atoms``: the only contact of the model side with ASE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnforce.errors import GeometryError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.neighbors import fold_positions, neighbor_list

if TYPE_CHECKING:
    from ase import Atoms

CHARGE_KEYS = ("charge", "total_charge")
SPIN_KEYS = ("spin_multiplicity", "multiplicity", "spin")


def graph_from_atoms(
    atoms: Atoms, cutoff: float, dtype: torch.dtype = torch.float64
) -> AtomGraph:
    """Build the graph of a structure.

    Charge is read from ``atoms.info`` under ``charge`` or ``total_charge`` and the spin
    multiplicity under ``spin_multiplicity``, ``multiplicity`` or ``spin``; without them
    the structure is neutral and a singlet. The atoms are not changed.

    In float64 the positions are the user's own. In a lower precision they are folded
    into the cell along periodic directions and moved to their center first, since
    rounding would otherwise grow with the distance from the origin.

    Args:
        atoms: The structure; atoms may lie outside the cell.
        cutoff: Radius of the neighbor list in Angstrom.
        dtype: Of positions, cell and shifts. A float32 model may be given a float64
            graph: it forms the edge vectors in float64 and rounds those.

    Returns:
        The graph, on the CPU.

    Raises:
        GeometryError: See :func:`~gnnforce.graph.neighbors.neighbor_list`; also for a
            fractional charge or a spin multiplicity below one.

    Example:
        >>> from ase import Atoms
        >>> graph = graph_from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, 0.74]]), 5.0)
        >>> graph.edge_index.tolist()
        [[1, 0], [0, 1]]
    """
    positions = np.array(atoms.positions, dtype=np.float64)
    cell = np.array(atoms.cell.array, dtype=np.float64)
    pbc = np.array(atoms.pbc, dtype=bool)
    if dtype != torch.float64:
        positions = fold_positions(positions, cell, pbc)
    edges = neighbor_list(positions, cell, pbc, cutoff)
    return AtomGraph(
        numbers=torch.from_numpy(np.array(atoms.numbers, dtype=np.int64)),
        positions=torch.from_numpy(positions).to(dtype),
        cell=torch.from_numpy(cell).to(dtype)[None],
        pbc=torch.from_numpy(pbc)[None],
        edge_index=torch.from_numpy(np.stack([edges.source, edges.target])),
        edge_shifts=torch.from_numpy(edges.shifts).to(dtype),
        charge=torch.tensor([total_charge(atoms)], dtype=dtype),
        spin_multiplicity=torch.tensor([spin_multiplicity(atoms)], dtype=dtype),
        cutoff=torch.tensor([cutoff], dtype=torch.float64),
    )


def atoms_from_graph(graph: AtomGraph) -> list[Atoms]:
    """Turn a graph, or every structure of a batch, back into ``ase.Atoms``.

    Args:
        graph: A graph or a batch.

    Returns:
        One ``Atoms`` a structure, with charge and spin multiplicity in ``info``.

    Example:
        >>> from ase.build import molecule
        >>> atoms_from_graph(graph_from_atoms(molecule("CO"), 5.0))[0].symbols
        Symbols('OC')
    """
    from ase import Atoms  # noqa: PLC0415  (models must not need ASE to import)

    structures = []
    for number in range(graph.n_graphs):
        own = graph.graph_index == number
        atoms = Atoms(
            numbers=graph.numbers[own].cpu().numpy(),
            positions=graph.positions[own].detach().double().cpu().numpy(),
            cell=graph.cell[number].detach().double().cpu().numpy(),
            pbc=graph.pbc[number].cpu().numpy(),
        )
        atoms.info["charge"] = round(float(graph.charge[number]))
        atoms.info["spin_multiplicity"] = round(float(graph.spin_multiplicity[number]))
        structures.append(atoms)
    return structures


def total_charge(atoms: Atoms) -> float:
    """Return the whole-number total charge in e that ``atoms.info`` states, else 0.

    Raises:
        GeometryError: For a charge that is no whole number.
    """
    return _whole_number(atoms.info, CHARGE_KEYS, default=0.0)


def spin_multiplicity(atoms: Atoms) -> float:
    """Return the spin multiplicity 2S + 1 that ``atoms.info`` states, else 1.

    Raises:
        GeometryError: For a multiplicity that is no whole number above zero.
    """
    value = _whole_number(atoms.info, SPIN_KEYS, default=1.0)
    if value < 1:
        raise GeometryError(
            f"spin multiplicity 2S+1 must be at least 1, not {value:g}; correct or remove "
            f"it in info (keys {', '.join(SPIN_KEYS)})"
        )
    return value


def _whole_number(
    info: dict[str, Any], keys: tuple[str, ...], *, default: float
) -> float:
    found = [(key, info[key]) for key in keys if info.get(key) is not None]
    values = []
    for key, raw in found:
        try:
            value = float(np.asarray(raw).reshape(()))
        except (TypeError, ValueError) as error:
            raise GeometryError(
                f"info[{key!r}] = {raw!r} is not a whole number"
            ) from error
        if not value.is_integer():
            raise GeometryError(f"info[{key!r}] = {raw!r} is not a whole number")
        values.append(value)
    if len(set(values)) > 1:
        raise GeometryError(f"info states different values: {dict(found)}")
    return values[0] if values else default
