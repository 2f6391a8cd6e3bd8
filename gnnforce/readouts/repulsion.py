"""Repulsion of screened nuclei at short range."""

import torch
from torch import Tensor, nn

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.ops.cutoff import polynomial_envelope
from gnnforce.ops.scatter import scatter_sum

COULOMB = 14.399645478425668  # e^2 / (4 pi epsilon_0), eV Angstrom (CODATA 2014, as ase)
BOHR = 0.5291772105638411  # Angstrom
COEFFICIENTS = (0.18175, 0.50986, 0.28022, 0.02817)
EXPONENTS = (3.19980, 0.94229, 0.40290, 0.20162)


class ZBLRepulsion(nn.Module):
    r"""Universal potential of Ziegler, Biersack and Littmark (1985).

    .. math::
        E = \tfrac12 \sum_e \frac{Z_i Z_j e^2}{4 \pi \epsilon_0 r}\,
            \varphi\!\left(\frac{r}{a_{ij}}\right) u(r), \qquad
        a_{ij} = \frac{0.8854\,a_0}{Z_i^{0.23} + Z_j^{0.23}}

    with the screening sum :math:`\varphi` of four exponentials and an envelope ``u``
    that ends it at ``radius``, so that it acts inside the bonding distance.

    Args:
        radius: Where the repulsion ends, in Angstrom.

    Example:
        >>> ZBLRepulsion(1.5).radius
        1.5
    """

    def __init__(self, radius: float = 1.5) -> None:
        super().__init__()
        self.radius = float(radius)

    def forward(self, graph: AtomGraph, lengths: Tensor) -> Tensor:
        """Compute the energy of every atom in eV, half of each of its pairs.

        Args:
            graph: A graph or batch.
            lengths: Edge lengths in Angstrom, shape ``(n_edges,)``.

        Returns:
            Shape ``(n_atoms,)``.
        """
        source, target = graph.edge_index
        charges = graph.numbers.to(lengths.dtype)
        z_j, z_i = charges[source], charges[target]
        x = lengths * (z_i**0.23 + z_j**0.23) / (0.8854 * BOHR)
        screening = torch.zeros_like(x)
        for coefficient, exponent in zip(COEFFICIENTS, EXPONENTS, strict=True):
            screening = screening + coefficient * torch.exp(-exponent * x)
        pair = COULOMB * z_i * z_j / lengths * screening
        pair = pair * polynomial_envelope(lengths, self.radius)
        return 0.5 * scatter_sum(pair, target, graph.n_atoms)
