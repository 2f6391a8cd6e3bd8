"""Repulsion of screened nuclei at short range."""

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.nn.exact import ExactBuffers
from gnnforce.ops.cutoff import polynomial_envelope
from gnnforce.ops.scatter import scatter_sum

COULOMB = 14.399645478425668  # e^2 / (4 pi epsilon_0), eV Angstrom (CODATA 2014, as ase)
BOHR = 0.5291772105638411  # Angstrom
COEFFICIENTS = (0.18175, 0.50986, 0.28022, 0.02817)
EXPONENTS = (3.19980, 0.94229, 0.40290, 0.20162)

# Angstrom, by atomic number (Cordero et al. 2008, DOI 10.1039/b801115j); 1.5 where the
# paper has none
# fmt: off
COVALENT_RADII = (
    0, 0.31, 0.28, 1.28, 0.96, 0.84, 0.76, 0.71, 0.66, 0.57, 0.58, 1.66, 1.41, 1.21,
    1.11, 1.07, 1.05, 1.02, 1.06, 2.03, 1.76, 1.7, 1.6, 1.53, 1.39, 1.39, 1.32,
    1.26, 1.24, 1.32, 1.22, 1.22, 1.2, 1.19, 1.2, 1.2, 1.16, 2.2, 1.95, 1.9, 1.75,
    1.64, 1.54, 1.47, 1.46, 1.42, 1.39, 1.45, 1.44, 1.42, 1.39, 1.39, 1.38, 1.39,
    1.4, 2.44, 2.15, 2.07, 2.04, 2.03, 2.01, 1.99, 1.98, 1.98, 1.96, 1.94, 1.92,
    1.92, 1.89, 1.9, 1.87, 1.87, 1.75, 1.7, 1.62, 1.51, 1.44, 1.41, 1.36, 1.36,
    1.32, 1.45, 1.46, 1.48, 1.4, 1.5, 1.5, 2.6, 2.21, 2.15, 2.06, 2, 1.96, 1.9,
    1.87, 1.8, 1.69, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    2,
)
# fmt: on


class ZBLRepulsion(ExactBuffers):
    r"""Universal potential of Ziegler, Biersack and Littmark (1985).

    .. math::
        E = \tfrac12 \sum_e \frac{Z_i Z_j e^2}{4 \pi \epsilon_0 r}\,
            \varphi\!\left(\frac{r}{a_{ij}}\right) u(r), \qquad
        a_{ij} = \frac{0.8854\,a_0}{Z_i^{0.23} + Z_j^{0.23}}

    with the screening sum :math:`\varphi` of four exponentials and an envelope ``u``
    that ends it at ``radius``, so that it acts inside the bonding distance.

    Args:
        radius: Where the repulsion ends, in Angstrom, the same for every pair; the
            sum of the covalent radii of a pair when None.
        cutoff: Radius of the neighbor list in Angstrom; the repulsion of heavy atoms, whose
            radii sum to more, ends there.

    Example:
        >>> from ase import Atoms
        >>> graph = AtomGraph.from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, 0.4]]), 5.0)
        >>> ZBLRepulsion()(graph, torch.tensor([0.4, 0.4])).round(decimals=3)
        tensor([2.7690, 2.7690])
    """

    radii: Tensor

    def __init__(
        self, radius: float | None = None, *, cutoff: float = float("inf")
    ) -> None:
        super().__init__()
        self.cutoff = cutoff
        half = [radius / 2] * len(COVALENT_RADII) if radius else COVALENT_RADII
        radii = torch.tensor(half, dtype=torch.float64)
        self.register_buffer("radii", radii, persistent=False)

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
        radii = self.radii[graph.numbers].to(lengths.dtype)
        ends = (radii[source] + radii[target]).clamp(max=self.cutoff)
        pair = pair * polynomial_envelope(lengths / ends, 1.0)
        return 0.5 * scatter_sum(pair, target, graph.n_atoms)
