"""A penalty on the slope of the energy surface between two structures."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnforce.derivatives.penalties import norm_costs, parts_of_the_way
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.path import interpolate
from gnnforce.models.force_field import ForceField
from gnnforce.ops.scatter import scatter_sum


def slope_penalty(
    model: ForceField,
    first: AtomGraph,
    second: AtomGraph,
    *,
    at: Tensor | torch.Generator,
    target: float = 0.0,
    strategy: str = "auto",
    heads: Sequence[str] | None = None,
) -> Tensor:
    r"""Penalize steep places of the energy surface between two structures.

    .. math:: P_n = \frac1G \sum_g \big(\lVert \partial E_{ng} / \partial R \rVert_2
              - k\big)^2 \quad\text{at}\quad R = R_g + t_g (R'_g - R_g)

    The form of :func:`~gnnforce.derivatives.penalties.gradient_penalty` on energies: a
    norm over all coordinates of a structure, for every output and structure by itself.
    Structures in between get a neighbor list of their own
    (:func:`~gnnforce.graph.path.interpolate`), so that atoms that come close only on the
    way see each other and the energy is the one that dynamics would have there.

    Args:
        model: The force field.
        first: Structures at one end, a graph or batch on the model's device.
        second: The same structures at the other end.
        at: ``t`` of every structure, shape ``(n_graphs,)``, or a generator that draws
            it uniformly from [0, 1).
        target: Norm ``k`` that costs nothing, in eV/Angstrom.
        strategy: How derivatives are taken, see :meth:`ForceField.predict`.
        heads: Names of the heads wanted; all when None.

    Returns:
        In (eV/Angstrom)^2, shape ``(n_outputs,)``; add for example ``0.01 *
        penalty.mean()`` to a loss. Differentiable with respect to the parameters; under
        ``no_grad`` just the values.

    Raises:
        GeometryError: When the ends are not of the same atoms, or atoms meet on the way.
        UserError: For ``at`` of another shape, a negative target, and what ``predict``
            refuses.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([1, 8], 16), [Head("energy", members=2)])
        >>> near = molecule("H2O")
        >>> far = near.copy()
        >>> far.positions[1] *= 1.3
        >>> ends = [AtomGraph.from_atoms(atoms, model.cutoff) for atoms in (near, far)]
        >>> penalty = slope_penalty(model, *ends, at=torch.Generator().manual_seed(0))
        >>> penalty.shape, penalty.requires_grad
        (torch.Size([2]), True)
    """
    trains = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    part = parts_of_the_way(first.n_graphs, at, first.positions)
    graph = interpolate(first, second, part, model.cutoff)
    forces = model.predict(
        graph, ["forces"], strategy=strategy, create_graph=trains, heads=heads
    )["forces"]
    with torch.inference_mode(False), torch.set_grad_enabled(trains):
        squares = (forces.double() ** 2).sum(dim=2).T  # (n_atoms, n_outputs)
        sums = scatter_sum(squares, graph.graph_index, graph.n_graphs)
        moving = sums > 0
        # the slope of a root at zero is infinite: structures at rest get the zero they have
        norms = torch.where(moving, torch.where(moving, sums, 1.0).sqrt(), 0.0)
        return norm_costs(norms, target).mean(dim=0)
