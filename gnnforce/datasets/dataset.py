"""Structures and labels as graphs, ready to be batched."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from ase import Atoms
from torch.utils.data import Dataset

from gnnforce.datasets.elements import check_elements
from gnnforce.datasets.frame_labels import Labels
from gnnforce.datasets.labels import LabelSpec, LabelTable, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import (
    DataError,
    GeometryError,
    UnknownHeadError,
    did_you_mean,
)
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.convert import graph_from_atoms
from gnnforce.quantities import QUANTITIES


class StructureDataset(Dataset[AtomGraph]):
    """Graphs with label fields.

    Every graph holds, for ``H`` heads in the order given, 0 and a mask of False where
    there is no label: ``energy_labels (1, H)`` float64, ``energy_mask (1, H)``,
    ``forces_labels (n_atoms, H, 3)``, ``forces_mask (n_atoms, H)``, ``stress_labels (1,
    H, 3, 3)``, ``stress_mask (1, H)``; ``frame_weight (1,)`` and ``frame_id (1,)``, the
    row in the whole data set, which a subset keeps.

    Args:
        frames: The structures.
        table: Their labels.
        heads: Heads of the model; one that the table does not have has no labels.
        cutoff: Radius of neighbors in Angstrom.
        dtype: Of positions, forces and stresses.

    Raises:
        DataError: When frames and table do not fit.
        UnknownHeadError: For labels of a head that is not among ``heads``.
        GeometryError: Names the frame that is no structure.
    """

    def __init__(
        self,
        frames: Sequence[Atoms],
        table: LabelTable,
        heads: Sequence[str],
        cutoff: float,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if len(frames) != len(table):
            raise DataError(f"{len(frames)} frames, but labels of {len(table)}")
        for name in table.heads:
            if name not in heads:
                raise UnknownHeadError(
                    f"there are labels for head {name!r}, but the heads are "
                    f"{', '.join(heads)}." + did_you_mean(name, heads)
                )
        self.frames = list(frames)
        self.table = table
        self.heads = list(heads)
        self.cutoff = cutoff
        self.graphs = [
            _with_labels(_graph(atoms, cutoff, dtype, row), table, self.heads, row)
            for row, atoms in enumerate(self.frames)
        ]

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.graphs)

    def __getitem__(self, row: int) -> AtomGraph:
        """Return the graph of one frame."""
        return self.graphs[row]

    def subset(self, indices: Sequence[int]) -> "StructureDataset":
        """Return some of the frames; graphs are shared and keep their ``frame_id``."""
        rows = [int(index) for index in indices]
        part = StructureDataset.__new__(StructureDataset)
        part.frames = [self.frames[row] for row in rows]
        part.table = self.table.subset(rows)
        part.heads, part.cutoff = self.heads, self.cutoff
        part.graphs = [self.graphs[row] for row in rows]
        return part

    def numbers(self) -> list[int]:
        """Return the atomic numbers that occur, sorted."""
        return sorted(
            {int(z) for atoms in self.frames for z in set(atoms.numbers.tolist())}
        )

    def n_edges(self) -> list[int]:
        """Return the number of edges of every frame."""
        return [graph.n_edges for graph in self.graphs]

    def check_elements(self, elements: Iterable[int]) -> None:
        """Raise when a frame holds an element outside the given ones.

        Raises:
            UnknownElementError: Names frame, element and the known elements.
        """
        check_elements(self.frames, elements)

    def summary(self) -> list[str]:
        """Say in lines for people what the data set holds."""
        return self.table.summary()


def build_dataset(
    source: str | Path | Sequence[Atoms],
    specs: Sequence[LabelSpec],
    cutoff: float,
    *,
    heads: Sequence[str] | None = None,
    require: Collection[str] = ("energy",),
    forces_limit: float | None = None,
    on_bad: Literal["error", "drop"] = "error",
) -> StructureDataset:
    """Read structures and labels and build their graphs.

    Args:
        source: A file, or frames.
        specs: Keys and units of the labels, one spec a head.
        cutoff: Radius of neighbors in Angstrom.
        heads: Heads of the model in their order; those of the specs by default.
        require: Quantities that must be there, see ``extract_labels``.
        forces_limit: See ``extract_labels``.
        on_bad: See ``extract_labels``; frames with refused labels are left out.

    For other options, use ``extract_labels`` and :class:`StructureDataset`.

    Returns:
        The data set; ``check_elements`` compares it with the elements of a model.

    Raises:
        DataError: For a file or a label that cannot be used.
        GeometryError: Names the frame that is no structure.
    """
    frames: list[Atoms]
    if isinstance(source, str | Path):
        frames, prefix = read_frames(source), f"{source}: "
    else:
        frames, prefix = list(source), ""
    try:
        table = extract_labels(
            frames,
            specs,
            require=require,
            forces_limit=forces_limit,
            on_bad=on_bad,
        )
        names = [spec.head for spec in specs] if heads is None else heads
        kept = [row for row in range(len(frames)) if row not in table.dropped]
        whole = table if len(kept) == len(frames) else _without_dropped(table, kept)
        return StructureDataset([frames[row] for row in kept], whole, names, cutoff)
    except (DataError, GeometryError) as error:
        raise type(error)(f"{prefix}{error}") from error


def _without_dropped(table: LabelTable, kept: Sequence[int]) -> LabelTable:
    """Leave refused frames out, but remember them by their number in the file."""
    part = table.subset(kept)
    part.dropped = dict(table.dropped)
    return part


def _graph(atoms: Atoms, cutoff: float, dtype: torch.dtype, row: int) -> AtomGraph:
    try:
        return graph_from_atoms(atoms, cutoff, dtype)
    except GeometryError as error:
        raise GeometryError(f"frame {row}: {error}") from error


def _with_labels(
    graph: AtomGraph, table: LabelTable, heads: Sequence[str], row: int
) -> AtomGraph:
    """Add the label fields to a graph."""
    dtype = graph.positions.dtype
    sizes: dict[str, tuple[int, ...]] = {
        name: (graph.n_atoms, len(heads))
        if QUANTITIES[name].per == "atom"
        else (1, len(heads))
        for name in ("energy", "forces", "stress")
    }
    for name, size in sizes.items():
        shape = (*size, *(3,) * QUANTITIES[name].rank)
        kind = torch.float64 if name == "energy" else dtype
        graph[f"{name}_labels"] = torch.zeros(shape, dtype=kind)
        graph[f"{name}_mask"] = torch.zeros(size, dtype=torch.bool)
    for column, head in enumerate(heads):
        labels = table.labels[row].get(head)
        if labels is not None:
            _fill(graph, column, labels)
    graph["frame_weight"] = torch.tensor([table.weights[row]], dtype=dtype)
    graph["frame_id"] = torch.tensor([row], dtype=torch.int64)
    return graph


def _fill(graph: Any, column: int, labels: Labels) -> None:  # noqa: ANN401
    if labels.energy is not None:
        graph["energy_labels"][0, column] = labels.energy
        graph["energy_mask"][0, column] = True
    if labels.forces is not None and labels.forces_mask is not None:
        graph["forces_labels"][:, column] = torch.from_numpy(labels.forces.copy())
        graph["forces_mask"][:, column] = torch.from_numpy(labels.forces_mask.copy())
    if labels.stress is not None:
        graph["stress_labels"][0, column] = torch.from_numpy(labels.stress.copy())
        graph["stress_mask"][0, column] = True
