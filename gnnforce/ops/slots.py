"""Edges in rows of equal length, so that sums over neighbors are dense arithmetic.

The edges of every atom are laid into one or more blocks of ``width`` slots. Blocks all have
the same length, so "for every atom, contract features with its neighbors" is
one batched matrix product. Empty slots hold an edge far outside the cutoff, whose value and
slope are zero.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

WIDTHS = (8, 16, 32, 64)
# a block that is not the only one of its atom is gathered and summed, which costs
BLOCK_PENALTY = 1.3
WIDTH_ON_DEVICE = 16  # chosen without looking at the degrees, which would wait


@dataclass(frozen=True, eq=False)
class Slots:
    """Where every edge of a graph lies in blocks by target, and in rows by source.

    Attributes:
        n_atoms: Number of atoms.
        width: Slots of a block.
        edge: Edge in every slot, ``n_edges`` where it is empty, ``(n_blocks * width,)``.
        slot: Slot of every edge, ``(n_edges,)``.
        source: Source atom of every slot, its own atom where it is empty, ``(n_blocks *
            width,)``.
        block_target: Target atom of every block, or None when block ``i`` is atom ``i``.
        slot_by_source: Slots of edges in the order of their source, ``(n_edges,)``.
        target_by_source: Target atoms in that order, ``(n_edges,)``.
        source_ends: Where each source begins and the last ends, ``(n_atoms + 1,)``.
        cache: Index tables made on first use.
    """

    n_atoms: int
    width: int
    edge: Tensor
    slot: Tensor
    source: Tensor
    block_target: Tensor | None
    slot_by_source: Tensor
    target_by_source: Tensor
    source_ends: Tensor
    cache: dict[tuple[str, int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return self.edge.shape[0] // self.width

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return self.slot.shape[0]

    def blocks(self, values: Tensor) -> Tensor:
        """View values of slots as ``(n_blocks, width, ...)``."""
        return values.view(self.n_blocks, self.width, *values.shape[1:])


_made = WeakTensorKeyDictionary()


def slots_of(edge_index: Tensor, n_atoms: int) -> Slots:
    """Return the slots of a graph, made once for an ``edge_index`` and kept with it.

    Args:
        edge_index: Row 0 the source, row 1 the target, shape ``(2, n_edges)``; sorted by
            target or not.
        n_atoms: Number of atoms.

    Returns:
        The layout.

    Example:
        >>> edges = torch.tensor([[1, 0], [0, 1]])
        >>> slots_of(edges, 3).edge
        tensor([0, 1, 2])
    """
    if edge_index.is_inference():  # does not tell when it is changed in place
        return make_slots(edge_index, n_atoms)
    key = (n_atoms, edge_index._version)  # noqa: SLF001  (changed in place: made again)
    known = _made.get(edge_index)
    if known is None or known[0] != key or not _same(edge_index, known[1]):
        known = (key, edge_index.detach().clone(), make_slots(edge_index, n_atoms))
        _made[edge_index] = known
    slots: Slots = known[2]
    return slots


def _same(edge_index: Tensor, seen: Tensor) -> bool:
    """Tell whether edges are those that were laid out.

    NumPy and ``.data`` change a tensor without counting a version; on a device, where
    looking would wait, the version is all there is.
    """
    return not is_read(edge_index) or torch.equal(edge_index, seen)


def make_slots(edge_index: Tensor, n_atoms: int, width: int | None = None) -> Slots:
    """Lay out the edges of a graph; see :func:`slots_of`.

    On a device other than the CPU nothing is read back: the number of blocks is then its
    upper bound, ``n_edges // width + n_atoms``.

    Args:
        edge_index: Shape ``(2, n_edges)``.
        n_atoms: Number of atoms.
        width: Slots of a block; chosen when None.

    Returns:
        The layout.
    """
    source, target = edge_index
    degree = count(target, n_atoms)
    if width is None:
        width, single = choose_width(degree)
    else:
        single = False
    order = torch.argsort(target, stable=True)
    block_target, in_order = _place(target.index_select(0, order), degree, width, single)
    n_blocks = n_atoms if block_target is None else block_target.shape[0]
    slot = torch.empty_like(order).scatter_(0, order, in_order)
    n_edges = source.shape[0]
    edge = torch.full((n_blocks * width,), n_edges, device=target.device)
    edge.scatter_(0, slot, torch.arange(n_edges, device=target.device))
    by_source = torch.argsort(source, stable=True)
    source_ends = torch.zeros(n_atoms + 1, dtype=torch.int64, device=target.device)
    source_ends[1:] = count(source, n_atoms).cumsum(0)
    return Slots(
        n_atoms=n_atoms,
        width=width,
        edge=edge,
        slot=slot,
        source=_sources(source, edge, block_target, width),
        block_target=block_target,
        slot_by_source=slot.index_select(0, by_source),
        target_by_source=target.index_select(0, by_source),
        source_ends=source_ends,
    )


def _sources(
    source: Tensor, edge: Tensor, block_target: Tensor | None, width: int
) -> Tensor:
    """Return the source of every slot.

    An empty one reads from its own atom: what is wrong in a graph of a batch stays there.
    """
    if block_target is None:
        block_target = torch.arange(edge.shape[0] // width, device=edge.device)
    own = block_target[:, None].expand(-1, width).reshape(-1)
    there = torch.cat([source, source.new_zeros(1)]).index_select(0, edge)
    return torch.where(edge == source.shape[0], own, there)


def _place(
    targets: Tensor, degree: Tensor, width: int, single: bool
) -> tuple[Tensor | None, Tensor]:
    """Return the atom of every block, and the slots of edges sorted by target."""
    n_edges, n_atoms = targets.shape[0], degree.shape[0]
    steps = torch.arange(n_edges, device=targets.device)
    rank = steps - (degree.cumsum(0) - degree).index_select(0, targets)
    if single:
        return None, targets * width + rank
    pieces = (degree + width - 1) // width
    ends = pieces.cumsum(0)
    n_blocks = n_edges // width + n_atoms  # at most, and known without looking
    if is_read(targets):
        n_blocks = int(pieces.sum())
    numbers = torch.arange(n_blocks, device=targets.device)
    block_target = torch.searchsorted(ends, numbers, right=True)
    block = (ends - pieces).index_select(0, targets) + rank // width
    slots = block * width + rank % width
    return block_target.clamp(max=max(n_atoms - 1, 0)), slots


def choose_width(degree: Tensor) -> tuple[int, bool]:
    """Choose the slots of a block, and whether every atom is to have a single one.

    Args:
        degree: Number of edges of every atom, shape ``(n_atoms,)``.

    Returns:
        The width that leaves the fewest slots empty; True for one block an atom.

    Example:
        >>> choose_width(torch.tensor([12, 13, 12]))
        (13, True)
        >>> choose_width(torch.tensor([12] * 50 + [200]))
        (8, False)
    """
    if not is_read(degree):
        return WIDTH_ON_DEVICE, False
    largest = max(1, int(degree.max())) if degree.numel() else 1
    best, single, cost = largest, True, float(degree.numel() * largest)
    for width in WIDTHS:
        slots = float(((degree + width - 1) // width).sum()) * width * BLOCK_PENALTY
        if slots < cost:
            best, single, cost = width, False, slots
    return best, single


def is_read(values: Tensor) -> bool:
    """Tell whether numbers may be looked at, for which a device would be waited for."""
    return values.device.type == "cpu"


def count(index: Tensor, size: int) -> Tensor:
    """Count how often every row is named, without waiting for a device; ``(size,)``."""
    return torch.zeros(size, dtype=torch.int64, device=index.device).scatter_add_(
        0, index, torch.ones_like(index)
    )
