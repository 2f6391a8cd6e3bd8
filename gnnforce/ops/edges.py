"""What a sum over neighbors is made of: paths, geometry, radial functions, features."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gnnforce.ops.slots import Slots


@dataclass(frozen=True)
class Paths:
    """Which degrees a layer embeds and carries.

    Attributes:
        embed: Degrees of the scalars, in the order of their columns in ``x`` and ``W``.
        carry: Degrees of the tensors, in the order in which they are passed; their
            columns of ``W`` follow those of ``embed``.
    """

    embed: tuple[int, ...] = ()
    carry: tuple[int, ...] = ()

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees of the results, ascending."""
        return tuple(sorted({*self.embed, *self.carry}))


class Edges(NamedTuple):
    """Geometry of the edges of a graph, in slots.

    Attributes:
        slots: The layout.
        lengths: In Angstrom, shape ``(n_slots,)``.
        directions: Unit vectors from target to source, shape ``(n_slots, 3)``.
    """

    slots: Slots
    lengths: Tensor
    directions: Tensor


class Radial(NamedTuple):
    """Radial functions of every slot before the last linear map.

    Attributes:
        value: ``b``, shape ``(n_slots, n_basis)``; zero beyond the cutoff.
        slope: ``db/dr``, same shape.
        sent: ``b`` of the edges in the order of their source, ``(n_edges, n_basis)``.
        weight: ``W``, one block of ``n_features`` rows for every path,
            ``(n_paths * n_features, n_basis)``.
    """

    value: Tensor
    slope: Tensor
    sent: Tensor
    weight: Tensor


class OfEdges(NamedTuple):
    """What a layer knows of every slot, all of it without outputs.

    Attributes:
        values: Radial functions of every path, each ``(n_slots, n_features)``.
        slopes: Their derivatives.
        x: Scalars of the source for every embedded degree, ``(n_slots, n_features)``.
        y: Tensors of the source for every carried degree, ``(n_slots, m, n_features)``.
    """

    values: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    x: tuple[Tensor, ...]
    y: tuple[Tensor, ...]


class Layer(NamedTuple):
    """Inputs of the primitive that are tensors; carried ones have a component axis."""

    paths: Paths
    slots: Slots
    directions: Tensor
    value: Tensor
    slope: Tensor
    sent: Tensor
    weight: Tensor
    x: tuple[Tensor, ...]
    carried: tuple[Tensor, ...]

    @property
    def n_paths(self) -> int:
        """Number of degrees that are embedded or carried."""
        return len(self.paths.embed) + len(self.paths.carry)

    @property
    def n_features(self) -> int:
        """Number of features of a path."""
        return self.weight.shape[0] // self.n_paths

    def of_edges(self, *, slopes: bool) -> OfEdges:
        """Evaluate radial functions and fetch what the sources hold."""
        source, n_paths = self.slots.source, self.n_paths
        return OfEdges(
            (self.value @ self.weight.T).chunk(n_paths, dim=1),
            (self.slope @ self.weight.T).chunk(n_paths, dim=1) if slopes else (),
            tuple(x.index_select(0, source) for x in self.x),
            tuple(y.index_select(0, source) for y in self.carried),
        )

    def to_blocks(self, values: Tensor, axis: int) -> Tensor:
        """Copy rows of targets to their blocks; nothing to do for one block an atom."""
        target = self.slots.block_target
        return values if target is None else values.index_select(axis, target)


def layer_of(paths: Paths, slots: Slots, tensors: tuple[Tensor, ...]) -> Layer:
    """Name the tensors of :func:`gnnforce.ops.aggregate.aggregate`."""
    directions, value, slope, sent, weight, *rows = tensors
    n_embedded = len(paths.embed)
    x = tuple(rows[:n_embedded])
    y = tuple(y[:, None] if y.dim() == 2 else y for y in rows[n_embedded:])
    return Layer(paths, slots, directions.detach(), value, slope, sent, weight, x, y)
