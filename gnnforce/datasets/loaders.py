"""Batches in an order that is a function of seed and epoch alone."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from gnnforce.datasets.dataset import StructureDataset
from gnnforce.errors import DataError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch


class EpochBatches(Sampler[list[int]]):
    """Rows of every batch of an epoch.

    Args:
        n_edges: Number of edges of every frame.
        batch_size: Frames in a batch at most.
        shuffle: Whether the order changes with the epoch.
        seed: Of the order.
        drop_last: Leave out a last batch that is not full, unless it is the only one.
        max_edges: Edges in a batch at most; one frame with more is a batch of its own.

    Example:
        >>> batches = EpochBatches([10, 90, 10, 10], 3, shuffle=False, max_edges=100)
        >>> list(batches)
        [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        n_edges: Sequence[int],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        drop_last: bool = False,
        max_edges: int | None = None,
    ) -> None:
        if len(n_edges) == 0:
            raise DataError("there are no frames to batch")
        for name, value in (("batch_size", batch_size), ("max_edges", max_edges)):
            if value is not None and value < 1:
                raise DataError(f"{name} must be at least 1, not {value}")
        self.n_edges = list(n_edges)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.max_edges = max_edges
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Number of batches of this epoch."""
        return len(self._batches())

    def __iter__(self) -> Iterator[list[int]]:
        """Go through the batches of this epoch."""
        return iter(self._batches())

    def _batches(self) -> list[list[int]]:
        rows = np.arange(len(self.n_edges))
        if self.shuffle:
            rows = np.random.default_rng([self.seed, self.epoch]).permutation(rows)
        batches: list[list[int]] = []
        edges = 0
        for row in rows.tolist():
            edges += self.n_edges[row]
            full = not batches or len(batches[-1]) == self.batch_size
            if full or (self.max_edges is not None and edges > self.max_edges):
                batches.append([])
                edges = self.n_edges[row]
            batches[-1].append(row)
        if self.drop_last and len(batches) > 1 and len(batches[-1]) < self.batch_size:
            batches.pop()
        return batches


class EpochLoader(DataLoader[AtomGraph]):
    """A ``DataLoader`` of batched graphs with ``set_epoch``."""

    batch_sampler: EpochBatches

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is; the order depends on it and the seed."""
        self.batch_sampler.set_epoch(epoch)


def make_loader(
    dataset: StructureDataset,
    batch_size: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    workers: int = 0,
    max_edges: int | None = None,
) -> EpochLoader:
    """Make a loader of batches; call ``set_epoch`` before every pass.

    The global random state is neither used nor changed.

    Args:
        dataset: At least one frame.
        batch_size: Frames in a batch at most.
        shuffle: Whether the order changes with the epoch.
        seed: Of the order.
        drop_last: Leave out a last batch that is not full, unless it is the only one.
        workers: Processes that make batches, with one thread each.
        max_edges: Edges in a batch at most, for structures of very different sizes.

    Returns:
        A loader of :class:`AtomGraph` batches.

    Raises:
        DataError: For an empty data set or a batch size below one.
    """
    batches = EpochBatches(
        dataset.n_edges(),
        batch_size,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
        max_edges=max_edges,
    )
    return EpochLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=batch,
        # without its own generator a loader draws from the global one
        generator=torch.Generator().manual_seed(seed),
    )
