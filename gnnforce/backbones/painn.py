"""PaiNN: polarizable atom interactions (Schuett et al., arXiv 2102.03150)."""

from functools import partial
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from gnnforce.backbones.base import Backbone, Interaction, edge_lengths
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.nn.embedding import ElementEmbedding
from gnnforce.nn.mlp import MLP, Dense, parameter, plain
from gnnforce.ops.aggregate import aggregate
from gnnforce.ops.cutoff import polynomial_envelope, polynomial_slope
from gnnforce.ops.edges import Edges, Paths, Radial
from gnnforce.ops.mode import is_chained
from gnnforce.ops.painn import Update, painn_node
from gnnforce.ops.perceptron import run_layers
from gnnforce.ops.polar import polar
from gnnforce.ops.radial import bessel_basis, bessel_slopes
from gnnforce.ops.recompute import is_recomputing
from gnnforce.ops.slots import slots_of

# rounds off the length of a vector near zero; with 1e-8 the Hessian of an atom whose vectors
# vanish by symmetry (methane, diamond) is that of a cusp, 1e-4 wide
NORM_EPSILON = 1e-2


class PaiNN(Backbone):
    r"""Invariant features from messages that also carry vectors.

    Every atom has scalars ``s`` (n_features) and vectors ``v`` (3 x n_features). A layer
    is the message block (eqs. 7 and 8 of arXiv 2102.03150) and the update block (eqs. 9 and
    10). Two differences, for the sake of second derivatives: the envelope takes value, slope
    and curvature to zero at the cutoff, where the paper's cosine leaves a jump in the
    curvature; and the length of a vector is rounded off near zero, where it has a cusp.

    Args:
        elements: Atomic numbers of the training set.
        n_features: Features of every atom.
        n_layers: Number of layers.
        cutoff: Radius of the neighbor list in Angstrom.
        n_radial: Number of radial functions.

    Example:
        >>> from ase.build import molecule
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), cutoff=5.0)
        >>> from gnnforce.graph.views import edge_vectors
        >>> backbone = PaiNN([1, 8], n_features=16).double()
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
        n_radial: int = 20,
    ) -> None:
        super().__init__(elements, n_features, cutoff)
        self.n_radial = n_radial
        self.embedding = ElementEmbedding(elements, n_features)
        self.messages = nn.ModuleList(
            PaiNNMessage(n_features, n_radial) for _ in range(n_layers)
        )
        self.updates = nn.ModuleList(PaiNNUpdate(n_features) for _ in range(n_layers))

    def forward(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Compute node features, shape ``(n_atoms, n_features)``."""
        if is_chained():
            return self._chained(graph, vectors)
        lengths = edge_lengths(vectors)  # (n_edges,)
        directions = vectors / lengths[:, None]  # (n_edges, 3)
        envelope = polynomial_envelope(lengths, self.cutoff)[:, None]
        radial = bessel_basis(lengths, self.cutoff, self.n_radial) * envelope
        # the envelope multiplies the filter's bias too
        radial = torch.cat([radial, envelope], dim=1)  # (n_edges, n_radial + 1)
        s = self.embedding(graph.numbers)  # (n_atoms, n_features)
        v: Tensor | None = None  # (n_atoms, 3, n_features); no vectors before layer 1
        if is_recomputing():  # filters belong to what is not kept
            for message, update in zip(self.messages, self.updates, strict=True):
                run = partial(_layer, message=message, update=update, graph=graph)
                s, v = self.layer(run, [message, update], s, v, radial, directions)
            return s
        filters = self._filters(radial)
        for message, update, w in zip(self.messages, self.updates, filters, strict=True):
            s, v = message(graph, s, v, w, directions)
            s, v = update(s, v)
        return s

    def _chained(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Compute the same on the aggregation primitive."""
        edges = polar(vectors, slots_of(graph.edge_index, graph.n_atoms), self.cutoff)
        lengths = edges.lengths.detach()  # (n_slots,)
        values = bessel_basis(lengths, self.cutoff, self.n_radial)
        slopes = bessel_slopes(lengths, self.cutoff, self.n_radial)
        u = polynomial_envelope(lengths, self.cutoff)[:, None]
        du = polynomial_slope(lengths, self.cutoff)[:, None]
        value = torch.cat([values * u, u], dim=1)  # (n_slots, n_radial + 1)
        slope = torch.cat([slopes * u + values * du, du], dim=1)
        basis = value, slope, value.index_select(0, edges.slots.slot_by_source)
        s = self.embedding(graph.numbers)
        layers = [m for m in self.messages if isinstance(m, PaiNNMessage)]
        updates = [u for u in self.updates if isinstance(u, PaiNNUpdate)]
        v: Tensor | None = None
        sent = layers[0].first(s) if layers else []
        for number, (layer, update) in enumerate(zip(layers, updates, strict=True)):
            ds, dv = layer.chained(edges, basis, *sent)
            last = number + 1 == len(layers)
            context = None if last else layers[number + 1].context.layers()
            s, *rest = painn_node((s, ds), (v, dv), update.parts(), context)
            if rest:
                v, *sent = rest
        return s

    def _filters(self, radial: Tensor) -> tuple[Tensor, ...]:
        """Evaluate the filters of all layers as one matrix product."""
        layers = (layer for layer in self.messages if isinstance(layer, PaiNNMessage))
        weights = [layer.filters.weight for layer in layers]
        if not weights:
            return ()
        filters = radial @ torch.cat(weights).T  # (n_edges, n_layers * 3 n)
        return filters.split(weights[0].shape[0], dim=1)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().arguments(),
            "n_layers": len(self.messages),
            "n_radial": self.n_radial,
        }


class PaiNNMessage(Interaction):
    r"""Message block of PaiNN.

    .. math::
        \Delta s_i &= \sum_j \phi_s(s_j) \odot W_s(r_{ij}) \\
        \Delta v_i &= \sum_j v_j \odot \phi_{vv}(s_j) \odot W_{vv}(r_{ij})
                    + \phi_{vs}(s_j) \odot W_{vs}(r_{ij})\, \hat r_{ij}

    Args:
        n_features: Features of every atom.
        n_radial: Number of radial functions.
    """

    def __init__(self, n_features: int, n_radial: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.context = MLP([n_features, n_features, 3 * n_features])
        self.filters = Dense(n_radial + 1, 3 * n_features, bias=False)

    def forward(
        self,
        graph: AtomGraph,
        s: Tensor,
        v: Tensor | None,
        filters: Tensor,
        directions: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return updated scalars and vectors."""
        edges = {"filters": filters, "directions": directions}
        ds, dv = self.collect(graph, {"phi": self.context(s), "v": v}, edges)
        return s + ds, dv if v is None else v + dv

    def first(self, s: Tensor) -> list[Tensor]:
        """Return what is sent before there are vectors, each ``(n_atoms, n_features)``."""
        x_0, x_1, _ = run_layers(s, self.context.layers()).result.chunk(3, dim=1)
        return [x_0, x_1]

    def chained(
        self, edges: Edges, basis: tuple[Tensor, Tensor, Tensor], *sent: Tensor
    ) -> tuple[Tensor, ...]:
        """Return changes of scalars and vectors; see ``Radial`` for the basis."""
        carry = (1,) if len(sent) > 2 else ()
        weight = parameter(plain(self.filters).weight)
        weight = weight[: len(sent) * self.n_features]  # the last is of what is carried
        paths = Paths(embed=(0, 1), carry=carry)
        return aggregate(paths, edges, Radial(*basis, weight), *sent)

    def message(
        self,
        phi_j: Tensor,
        v_j: Optional[Tensor],  # noqa: UP045  (PyG reads the type)
        filters: Tensor,
        directions: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return scalars ``(n_edges, n)`` and vectors ``(n_edges, 3, n)``."""
        scalar, along, carry = (phi_j * filters).split(self.n_features, dim=1)
        turned = along[:, None, :] * directions[:, :, None]
        if v_j is None:
            return scalar, turned
        return scalar, carry[:, None, :] * v_j + turned


def _layer(
    s: Tensor,
    v: Tensor | None,
    radial: Tensor,
    directions: Tensor,
    *,
    message: nn.Module,
    update: nn.Module,
    graph: AtomGraph,
) -> tuple[Tensor, Tensor]:
    """Run both blocks of a layer, which makes its own filters."""
    assert isinstance(message, PaiNNMessage)
    s, v = message(graph, s, v, message.filters(radial), directions)
    result: tuple[Tensor, Tensor] = update(s, v)
    return result


class PaiNNUpdate(nn.Module):
    r"""Update block of PaiNN.

    .. math::
        \Delta v_i &= a_{vv} \odot U v_i \\
        \Delta s_i &= a_{ss} + a_{sv} \odot \langle U v_i, V v_i \rangle

    with :math:`(a_{vv}, a_{sv}, a_{ss}) = \mathrm{MLP}(s_i, \|V v_i\|)` and
    :math:`\|w\| = \sqrt{w^2 + 0.01}`.

    Args:
        n_features: Features of every atom.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.mix = Dense(n_features, 2 * n_features, bias=False)
        self.context = MLP([2 * n_features, n_features, 3 * n_features])

    def forward(self, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return updated scalars and vectors."""
        u, w = self.mix(v).split(self.n_features, dim=-1)  # (n_atoms, 3, n_features)
        norm = torch.sqrt((w * w).sum(dim=1) + NORM_EPSILON)  # (n_atoms, n_features)
        a = self.context(torch.cat([s, norm], dim=1))
        a_vv, a_sv, a_ss = a.split(self.n_features, dim=1)
        s = s + a_ss + a_sv * (u * w).sum(dim=1)
        return s, v + a_vv[:, None, :] * u

    def parts(self) -> Update:
        """Return the parameters as the primitive takes them."""
        weight = parameter(plain(self.mix).weight)
        return Update(weight, self.context.layers(), NORM_EPSILON)
