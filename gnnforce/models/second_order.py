"""Hessians and Hessian-vector products of a force field."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from gnnforce.derivatives.cost import row_bytes
from gnnforce.derivatives.second import derivative_rows, product, recorded_gradient
from gnnforce.derivatives.splitting import memory_limit, rows_at_once
from gnnforce.errors import GradientError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import edge_vectors
from gnnforce.models.combinations import Weights, weights_of
from gnnforce.models.derive import Request, workload
from gnnforce.models.force_field import ForceField
from gnnforce.models.leaves import check_cutoff, usable
from gnnforce.ops.scatter import gather, one_cotangent
from gnnforce.readouts.head import OutputTable

# Bytes of temporaries on a CPU. Measured for 32 atoms, PaiNN 64x3 in float64: all 96 rows at
# once in 2 GiB take twice the time of a few, since nothing stays in the cache.
NEAR = 64 * 1024**2


def hessian(
    model: ForceField,
    graph: AtomGraph,
    *,
    heads: Sequence[str] | None = None,
    weights: Weights | None = None,
    memory: float | str | None = None,
) -> Tensor:
    r"""Second derivatives of the energy of every output with respect to positions.

    .. math:: H^{n}_{ia,jb} = \frac{\partial^2 E_n}{\partial R_{ia}\, \partial R_{jb}}

    The gradient of an output is recorded and differentiated row by row, as many rows at
    once as the memory limit allows; rounding errors are symmetrized away. In a periodic
    cell this is the Hessian at the Gamma point: all images of an atom move together.

    Args:
        model: The force field; use float64 (``model.double()``), since small
            frequencies are differences of large numbers.
        graph: One structure, on the model's device.
        heads: Names of the heads wanted; all when None.
        weights: Hessians of combinations of outputs instead, such as
            :func:`~gnnforce.models.combinations.mean_of`; as in ``predict``.
        memory: Limit for temporaries, as in ``predict``; on a CPU at most 64 MiB are used,
            more would be slower.

    Returns:
        In eV/Angstrom^2, shape ``(n_outputs, 3 n_atoms, 3 n_atoms)``, in the order atom 0
        x y z, atom 1 x y z, ...

    Raises:
        UserError: For a batch, or a backbone whose operations cannot be vectorized.
        GradientError: For second derivatives that are not finite or not symmetric.
        GeometryError: For a graph made for a smaller cutoff than the model's.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.painn import PaiNN
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(PaiNN([1, 8], 8), [Head("energy", members=2)]).double()
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
        >>> matrix = hessian(model, graph)
        >>> matrix.shape, torch.equal(matrix, matrix.mT)
        (torch.Size([2, 9, 9]), True)
    """
    with recorded(model, graph, heads, weights, strained=False) as energies:
        rows = rows_in_memory(model, graph, energies, memory)
        matrix = energies.matrices(rows)
    return symmetrized(matrix, model.dtype)


def symmetrized(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Average second derivatives with their transpose, after a look at the difference.

    An operation whose rule for the second derivative is wrong makes them asymmetric;
    the average would hide it.

    Args:
        matrix: Shape ``(n_outputs, n_variables, n_variables)``.
        dtype: In which the model computed them.

    Returns:
        Same shape, exactly symmetric.

    Raises:
        GradientError: When they are not finite, or asymmetric beyond rounding (5e-7 of
            the largest entry of an output in float64, 2e-3 in float32).
    """
    size = matrix.abs().amax(dim=(1, 2)) if matrix.numel() else matrix.new_zeros(0)
    if not bool(size.isfinite().all()):
        raise GradientError(
            "second derivatives are not finite; look for atoms on top of each other, or "
            "for an operation of the backbone without a slope, such as a norm at zero"
        )
    if matrix.numel():
        apart = (matrix - matrix.mT).abs().amax(dim=(1, 2))
        if bool((apart > torch.finfo(dtype).eps ** 0.4 * size).any()):
            raise GradientError(
                f"second derivatives differ from their transpose by {float(apart.max()):.1e} "
                f"of {float(size.max()):.1e}; an operation of the model has a wrong "
                "double backward"
            )
    return 0.5 * (matrix + matrix.mT)


def hessian_vector_product(
    model: ForceField,
    graph: AtomGraph,
    direction: Tensor,
    *,
    heads: Sequence[str] | None = None,
    weights: Weights | None = None,
) -> Tensor:
    r"""Multiply the Hessian of every output with a displacement of all atoms.

    .. math:: p^n_{jb} = \sum_{ia} H^n_{ia,jb}\, v_{ia}

    Two backward passes an output, in memory proportional to the number of edges.

    Args:
        model: The force field.
        graph: A structure or a batch, on the model's device.
        direction: ``v``, any unit, shape ``(n_atoms, 3)``.
        heads: Names of the heads wanted; all when None.
        weights: Combinations of outputs instead, as in ``predict``.

    Returns:
        In eV/Angstrom^2 times the unit of ``v``, shape ``(n_outputs, n_atoms, 3)``.

    Raises:
        UserError: For a direction of another shape.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.painn import PaiNN
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(PaiNN([1, 8], 8), [Head("energy")]).double()
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
        >>> shift = torch.ones(3, 3, dtype=torch.float64)  # all atoms together
        >>> bool(hessian_vector_product(model, graph, shift).abs().max() < 1e-10)
        True
    """
    if direction.shape != graph.positions.shape:
        raise UserError(
            f"direction must have the shape (n_atoms, 3) = {tuple(graph.positions.shape)}"
            f", not {tuple(direction.shape)}"
        )
    with (
        recorded(model, graph, heads, weights, strained=False, single=True) as energies,
        one_cotangent(),
    ):
        flat = direction.detach().reshape(-1).to(graph.positions)
        rows = [product(g, energies.inputs, flat) for g in energies.gradients()]
    if not rows:
        return flat.new_zeros(0, *direction.shape)
    return torch.stack(rows).view(len(rows), *direction.shape)


class Energies(NamedTuple):
    """Energies that were computed from displacements, and maybe from a strain.

    Attributes:
        energy: In eV, shape ``(n_outputs, n_graphs)``.
        weights: What is differentiated, ``(n_rows, n_outputs, n_graphs)``.
        inputs: Displacements ``(n_atoms, 3)`` in Angstrom; then the Voigt strain ``(6,)``.
        table: The outputs.
    """

    energy: Tensor
    weights: Tensor
    inputs: tuple[Tensor, ...]
    table: OutputTable

    def gradients(self) -> Iterator[Tensor]:
        """Yield the gradient of each row, all variables one after the other."""
        for weight in self.weights:
            if self.energy.requires_grad:
                yield recorded_gradient(self.energy, self.inputs, weight)
            else:  # no edges
                yield torch.cat([torch.zeros_like(x).view(-1) for x in self.inputs])

    def matrices(self, rows: int) -> Tensor:
        """Return the second derivatives of each row of ``weights``, not symmetrized."""
        last = len(self.weights) - 1
        found = [
            derivative_rows(gradient, self.inputs, rows, keep=number < last).detach()
            for number, gradient in enumerate(self.gradients())
        ]
        n = sum(x.numel() for x in self.inputs)
        return torch.stack(found) if found else self.energy.new_zeros(0, n, n)


@contextmanager
def recorded(
    model: ForceField,
    graph: AtomGraph,
    heads: Sequence[str] | None,
    weights: Weights | None,
    *,
    strained: bool,
    single: bool = False,
) -> Iterator[Energies]:
    """Compute energies from displacements at zero, recorded for second derivatives.

    Args:
        model: The force field.
        graph: The structure, or a batch with ``single``.
        heads: Names of heads, or None.
        weights: Combinations of outputs, or None.
        strained: Make a homogeneous strain a variable too.
        single: Second derivatives are taken one direction at a time.
    """
    check_cutoff(graph, model.cutoff)
    if graph.n_graphs != 1 and not single:
        raise UserError(
            f"second derivatives are those of one structure, not of a batch of "
            f"{graph.n_graphs}; take the graphs one after the other"
        )
    table = model.outputs if heads is None else model.outputs.select(list(heads))
    plain: AbstractContextManager[None] = one_cotangent() if single else nullcontext()
    with torch.inference_mode(False), torch.enable_grad():
        graph = usable(graph)
        moved = torch.zeros_like(graph.positions).requires_grad_()
        strain = graph.positions.new_zeros(6).requires_grad_()
        with plain:
            vectors = displaced(graph, moved, strain if strained else None)
            out = model(graph, vectors.to(model.dtype), table, frozen=True)
            rows = _weights(weights, out.energy, table)
        inputs = (moved, strain) if strained else (moved,)
        yield Energies(out.energy, rows, inputs, table)


def displaced(graph: AtomGraph, moved: Tensor, strain: Tensor | None) -> Tensor:
    r"""Return edge vectors of displaced atoms in a strained cell.

    .. math:: \mathbf r_e = (1 + \epsilon)\,(\mathbf r^0_e + \mathbf u_j - \mathbf u_i)

    Displacements are measured before the strain, so that zero displacement under strain
    keeps fractional coordinates.

    Args:
        graph: The structure.
        moved: ``u`` in Angstrom, shape ``(n_atoms, 3)``.
        strain: In Voigt order xx yy zz yz xz xy with twice the shear (``2 eps_yz`` ...),
            shape ``(6,)``, or None.
    """
    source, target = graph.edge_index
    vectors = edge_vectors(graph).detach()
    vectors = vectors + gather(moved, source) - gather(moved, target)
    return vectors if strain is None else vectors + vectors @ from_voigt(strain)


def from_voigt(strain: Tensor) -> Tensor:
    """Return the symmetric ``(3, 3)`` matrix of a Voigt strain with doubled shears."""
    xx, yy, zz, yz, xz, xy = strain * strain.new_tensor([1, 1, 1, 0.5, 0.5, 0.5])
    return torch.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz]).view(3, 3)


def _weights(weights: Weights | None, energy: Tensor, table: OutputTable) -> Tensor:
    if weights is not None:
        return weights_of(weights, energy, table)
    unit = torch.eye(table.n_outputs, dtype=energy.dtype, device=energy.device)
    return unit[:, :, None].expand(*unit.shape, energy.shape[1])


def rows_in_memory(
    model: ForceField, graph: AtomGraph, energies: Energies, memory: float | str | None
) -> int:
    """Return how many rows of second derivatives to take at once."""
    request = Request(("forces",), energies.table, None, "batched", True, memory)
    work = workload(model, graph, request, 0)
    n_rows = sum(x.numel() for x in energies.inputs)
    limit = memory_limit(memory)
    if graph.positions.device.type == "cpu":
        limit = min(limit, NEAR)
    return rows_at_once(n_rows, row_bytes("batched", work), limit)
