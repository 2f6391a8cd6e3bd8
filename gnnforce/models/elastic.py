"""Elastic constants of a force field, with and without the relaxation of atoms."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gnnforce.errors import StressError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import has_stress, volumes
from gnnforce.models.combinations import Weights
from gnnforce.models.force_field import ForceField
from gnnforce.models.second_order import recorded, rows_in_memory, symmetrized

GPA = 160.21766208  # GPa in eV/Angstrom^3 (CODATA 2014, as ase)
FLAT = 1e-8  # of the largest eigenvalue: below it a mode has no restoring force


class ElasticConstants(NamedTuple):
    r"""Second derivatives with respect to a homogeneous strain, per volume.

    Voigt order xx yy zz yz xz xy, with doubled shears.

    Attributes:
        clamped: Atoms keep their fractional coordinates, in eV/Angstrom^3, shape
            ``(n_outputs, 6, 6)``.
        relaxed: Atoms follow the strain, same shape.
        internal: Derivatives of forces by strain, :math:`\Lambda = -\partial F /
            \partial \epsilon`, in eV/Angstrom, ``(n_outputs, n_atoms, 3, 6)``.
    """

    clamped: Tensor
    relaxed: Tensor
    internal: Tensor

    def in_gpa(self) -> "ElasticConstants":
        """Return the constants in GPa; ``internal`` as it is."""
        return ElasticConstants(self.clamped * GPA, self.relaxed * GPA, self.internal)


def elastic_constants(
    model: ForceField,
    graph: AtomGraph,
    *,
    heads: Sequence[str] | None = None,
    weights: Weights | None = None,
    memory: float | str | None = None,
) -> ElasticConstants:
    r"""Elastic constants of a crystal, of every output.

    .. math::
        C^\mathrm{clamped}_{ij} &= \frac1V \frac{\partial^2 E}{\partial \epsilon_i\,
        \partial \epsilon_j}, \qquad
        \Phi = \frac{\partial^2 E}{\partial u\, \partial u}, \qquad
        \Lambda = \frac{\partial^2 E}{\partial u\, \partial \epsilon} \\
        C^\mathrm{relaxed} &= C^\mathrm{clamped} - \frac1V \Lambda^T \Phi^{+} \Lambda

    The strain is symmetric, :math:`r \to (1 + \epsilon)(r + u)`, taken from the given cell
    of volume ``V``, so displacements ``u`` at zero keep fractional coordinates. The
    pseudo-inverse leaves out the three translations and other modes without restoring
    force. The relaxed constants are meaningful at positions without forces. Where the given
    cell is under stress, these second derivatives of the energy are not the
    stress-strain coefficients: those differ by terms of the stress (Wallace,
    Thermodynamics of Crystals, 1972, section 2).

    Args:
        model: The force field; use float64.
        graph: One periodic structure, relaxed, on the model's device.
        heads: Names of the heads wanted; all when None.
        weights: Combinations of outputs instead, as in ``predict``.
        memory: Limit for temporaries, as in ``predict``.

    Returns:
        Clamped and relaxed constants and the coupling of both, float64.

    Raises:
        StressError: For a structure without a periodic direction or a volume.
        UserError: For a batch.
        GradientError: For second derivatives that are not finite or not symmetric.

    Example:
        >>> from ase.build import bulk
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([14], 8), [Head("energy")]).double()
        >>> graph = AtomGraph.from_atoms(bulk("Si"), model.cutoff)
        >>> elastic_constants(model, graph).in_gpa().relaxed.shape
        torch.Size([1, 6, 6])
    """
    with recorded(model, graph, heads, weights, strained=True) as energies:
        if not bool(has_stress(graph).all()):
            raise StressError(
                "elastic constants need a periodic direction and a cell with a volume"
            )
        matrix = energies.matrices(rows_in_memory(model, graph, energies, memory))
    matrix = symmetrized(matrix, model.dtype).double()
    n = 3 * graph.n_atoms
    stiffness, coupling = matrix[:, :n, :n], matrix[:, :n, n:]
    volume = volumes(graph)
    clamped = matrix[:, n:, n:] / volume
    # in float32 translations have no restoring force up to rounding only: leave them out
    still = torch.eye(n, dtype=matrix.dtype, device=matrix.device)
    shift = torch.eye(3, dtype=matrix.dtype, device=matrix.device)
    still = still - shift.repeat(graph.n_atoms, graph.n_atoms) / graph.n_atoms
    inverse = torch.linalg.pinv(still @ stiffness @ still, hermitian=True, rtol=FLAT)
    relaxed = clamped - coupling.mT @ inverse @ coupling / volume
    internal = coupling.unflatten(1, (graph.n_atoms, 3))
    return ElasticConstants(clamped, 0.5 * (relaxed + relaxed.mT), internal)
