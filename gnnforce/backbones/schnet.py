"""SchNet: continuous-filter convolutions (Schuett et al., arXiv 1706.08566)."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnnforce.backbones.base import Backbone, Interaction, edge_lengths
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.nn.embedding import ElementEmbedding
from gnnforce.nn.mlp import MLP, Dense
from gnnforce.ops.aggregate import aggregate
from gnnforce.ops.cutoff import polynomial_envelope, polynomial_slope
from gnnforce.ops.edges import Edges, Paths, Radial
from gnnforce.ops.mode import is_chained
from gnnforce.ops.polar import polar
from gnnforce.ops.radial import gaussian_basis, gaussian_slopes
from gnnforce.ops.slots import slots_of


class SchNet(Backbone):
    r"""Invariant features from continuous-filter convolutions.

    .. math:: x_i \leftarrow x_i + \mathrm{MLP}\Big[\sum_j (W x_j) \odot
              \mathrm{filter}(r_{ij})\,u(r_{ij})\Big]

    Figure 2 of arXiv 1706.08566, with three differences: neighbors end at a cutoff, where
    the envelope ``u`` takes value, slope and curvature to zero; the Gaussians are as
    wide as their spacing; the readout is a :class:`~gnnforce.readouts.head.Head`.

    Args:
        elements: Atomic numbers of the training set.
        n_features: Features of every atom.
        n_layers: Number of interaction blocks.
        cutoff: Radius of the neighbor list in Angstrom.
        n_radial: Number of Gaussians, at least two.

    Raises:
        UserError: For fewer Gaussians; also see :class:`~gnnforce.backbones.base.Backbone`.

    Example:
        >>> from ase.build import molecule
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), cutoff=5.0)
        >>> from gnnforce.graph.views import edge_vectors
        >>> backbone = SchNet([1, 8], n_features=16).double()
        >>> backbone(graph, edge_vectors(graph)).shape
        torch.Size([3, 16])
    """

    chained: ClassVar[bool] = True
    layered: ClassVar[bool] = True

    def __init__(
        self,
        elements: list[int],
        n_features: int = 64,
        n_layers: int = 3,
        cutoff: float = 5.0,
        n_radial: int = 25,
    ) -> None:
        super().__init__(elements, n_features, cutoff)
        if n_radial < 2:
            raise UserError(f"n_radial of SchNet must be at least 2, not {n_radial}")
        self.n_radial = n_radial
        self.embedding = ElementEmbedding(elements, n_features)
        self.interactions = nn.ModuleList(
            SchNetInteraction(n_features, n_radial) for _ in range(n_layers)
        )

    def forward(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Compute node features, shape ``(n_atoms, n_features)``."""
        if is_chained():
            return self._chained(graph, vectors)
        lengths = edge_lengths(vectors)  # (n_edges,)
        radial = gaussian_basis(lengths, self.cutoff, self.n_radial)
        envelope = polynomial_envelope(lengths, self.cutoff)[:, None]  # (n_edges, 1)
        x = self.embedding(graph.numbers)  # (n_atoms, n_features)
        for interaction in self.interactions:
            run = partial(_layer, interaction=interaction, graph=graph)
            (x,) = self.layer(run, [interaction], x, radial, envelope)
        return x

    def _chained(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Compute the same on the aggregation primitive."""
        edges = polar(vectors, slots_of(graph.edge_index, graph.n_atoms), self.cutoff)
        lengths = edges.lengths.detach()  # (n_slots,)
        basis = gaussian_basis(lengths, self.cutoff, self.n_radial)
        slopes = gaussian_slopes(lengths, self.cutoff, self.n_radial)
        envelope = (
            polynomial_envelope(lengths, self.cutoff)[:, None],
            polynomial_slope(lengths, self.cutoff)[:, None],
        )
        x = self.embedding(graph.numbers)
        for interaction in self.interactions:
            assert isinstance(interaction, SchNetInteraction)
            x = x + interaction.chained(edges, x, (basis, slopes), envelope)
        return x

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().arguments(),
            "n_layers": len(self.interactions),
            "n_radial": self.n_radial,
        }


def _layer(
    x: Tensor,
    radial: Tensor,
    envelope: Tensor,
    *,
    interaction: nn.Module,
    graph: AtomGraph,
) -> tuple[Tensor]:
    """Add the update of one block."""
    return (x + interaction(graph, x, radial, envelope),)


class SchNetInteraction(Interaction):
    """One interaction block of SchNet.

    Args:
        n_features: Features of every atom.
        n_radial: Number of radial functions.
    """

    def __init__(self, n_features: int, n_radial: int) -> None:
        super().__init__()
        ssp = "shifted_softplus"
        self.filters = MLP([n_radial, n_features, n_features], ssp)
        self.inward = Dense(n_features, n_features, bias=False)
        self.outward = MLP([n_features, n_features, n_features], ssp)

    def forward(
        self, graph: AtomGraph, x: Tensor, radial: Tensor, envelope: Tensor
    ) -> Tensor:
        """Return the update of the features, shape ``(n_atoms, n_features)``."""
        filters = self.filters(radial) * envelope  # (n_edges, n_features)
        (collected,) = self.collect(graph, {"x": self.inward(x)}, {"filters": filters})
        update: Tensor = self.outward(collected)
        return update

    def chained(
        self,
        edges: Edges,
        x: Tensor,
        basis: tuple[Tensor, Tensor],
        envelope: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Return the update; radial functions come as values and slopes in slots."""
        value, slope = self.filters.tangent(*basis)  # (n_slots, n_features)
        u, du = envelope
        last = self.filters.layers()
        bias = last.biases[-1]
        assert bias is not None
        enveloped = torch.cat([value * u, u], dim=1)  # the envelope multiplies the bias
        radial = Radial(
            enveloped,
            torch.cat([slope * u + value * du, du], dim=1),
            enveloped.index_select(0, edges.slots.slot_by_source),
            torch.cat([last.weights[-1], bias[:, None]], dim=1),
        )
        (collected,) = aggregate(Paths(embed=(0,)), edges, radial, self.inward(x))
        update: Tensor = self.outward(collected)
        return update

    def message(self, x_j: Tensor, filters: Tensor) -> tuple[Tensor]:
        """Return the message of every edge, shape ``(n_edges, n_features)``."""
        return (x_j * filters,)
