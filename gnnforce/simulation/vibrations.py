"""Harmonic vibrations from the analytic Hessian, thin on ASE."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.constraints import FixAtoms
from ase.optimize import BFGS
from ase.vibrations import VibrationsData
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from gnnforce.calculators.ase import Calculator
from gnnforce.errors import GeometryError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.models.second_order import hessian


@dataclass(frozen=True)
class Vibrations:
    r"""Frequencies of a structure, by every member of a head.

    Attributes:
        frequencies: Of the committee's mean Hessian in cm^-1, complex, one for each free
            coordinate; imaginary where the energy curves downward.
        members: Frequencies of every member's own Hessian in cm^-1, imaginary ones
            negative, shape ``(n_members, n_modes)``. Each is put in the column of the
            mode of the mean that it overlaps with most (one to one), since order alone
            would mix up translations with modes that one member finds imaginary.
        deviation: Standard deviation of those over members in cm^-1 (ddof=1); None with
            one member.
        zero_point_energy: :math:`\tfrac12 \sum h \nu` of the real modes, in eV.
        max_force: Largest force on a free atom in eV/Angstrom; a harmonic
            frequency has a meaning where it is small.
        data: ASE's object, for modes, density of states and thermochemistry.
    """

    frequencies: NDArray[np.complex128]
    members: NDArray[np.float64]
    deviation: NDArray[np.float64] | None
    zero_point_energy: float
    max_force: float
    data: VibrationsData


def vibrations(
    atoms: Atoms, model: ForceField, head: str | None = None, *, all_atoms: bool = False
) -> Vibrations:
    r"""Compute harmonic frequencies.

    .. math:: \omega^2\,x = M^{-1/2} H M^{-1/2}\,x, \qquad H = \tfrac1M \sum_m H_m

    with the masses of ``atoms``. In a periodic cell these are the modes at the Gamma
    point of that cell.

    Args:
        atoms: The structure, at a minimum; atoms fixed by ``FixAtoms`` are left out.
        model: The force field, in float64.
        head: Name of the head; the model's first when None.
        all_atoms: Let fixed atoms move too.

    Returns:
        Frequencies and what goes with them.

    Raises:
        UserError: For a model that is not float64, or when no atom can move.
        GeometryError: For a structure without atoms, or with masses that are not positive.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([1, 8], 8), [Head("e", members=2)]).double()
        >>> len(vibrations(molecule("H2O"), model).frequencies)
        9
    """
    if str(model.dtype) != "torch.float64":
        raise UserError("vibrations need a model in float64; use model.double()")
    if len(atoms) == 0:
        raise GeometryError("a structure without atoms has no vibrations")
    if not (atoms.get_masses() > 0).all():
        raise GeometryError(
            "vibrations need masses above 0; correct them with set_masses"
        )
    free = free_atoms(atoms, all_atoms=all_atoms)
    graph = AtomGraph.from_atoms(atoms, model.cutoff).to(model.device)
    name = model.outputs.names[0] if head is None else head
    members = hessian(model, graph, heads=[name]).cpu().numpy()
    out = model.predict(graph, ["forces"], heads=[name])
    forces = out.head(name).mean("forces").cpu().numpy()[free]
    coordinates = (3 * free[:, None] + np.arange(3)).ravel()
    members = members[:, coordinates][:, :, coordinates]
    indices = free.tolist()
    data = VibrationsData.from_2d(atoms, members.mean(axis=0), indices=indices)
    each = np.stack(
        [matched(VibrationsData.from_2d(atoms, h, indices), data) for h in members]
    )
    deviation = np.std(each, axis=0, ddof=1) if len(each) > 1 else None
    energies = data.get_energies()
    return Vibrations(
        frequencies=data.get_frequencies(),
        members=each,
        deviation=deviation,
        zero_point_energy=float(0.5 * energies.real.sum()),
        max_force=float(np.linalg.norm(forces, axis=1).max()),
        data=data,
    )


def signed(data: VibrationsData) -> NDArray[np.float64]:
    """Return frequencies in cm^-1 in their order, imaginary ones negative."""
    frequencies = data.get_frequencies()
    values: NDArray[np.float64] = frequencies.real - np.abs(frequencies.imag)
    return values


def matched(data: VibrationsData, reference: VibrationsData) -> NDArray[np.float64]:
    """Return signed frequencies in the order of the modes they resemble.

    Args:
        data: Of one member.
        reference: Of the mean, for the same atoms.

    Returns:
        In cm^-1, one to one with the modes of ``reference``, the sum of squared overlaps
        of mass-weighted modes being as large as possible.
    """
    overlaps = (weighted_modes(reference).T @ weighted_modes(data)) ** 2
    _, order = linear_sum_assignment(overlaps, maximize=True)
    values: NDArray[np.float64] = signed(data)[order]
    return values


def weighted_modes(data: VibrationsData) -> NDArray[np.float64]:
    """Return orthonormal mass-weighted modes as columns, softest first as in ASE."""
    indices = data.get_indices()
    roots = np.repeat(np.sqrt(data.get_atoms().get_masses()[indices]), 3)
    _, modes = np.linalg.eigh(data.get_hessian_2d() / np.outer(roots, roots))
    columns: NDArray[np.float64] = modes
    return columns


def free_atoms(atoms: Atoms, *, all_atoms: bool) -> NDArray[np.int64]:
    """Return the indices of atoms that may move.

    Raises:
        UserError: When there are none.
    """
    free = np.ones(len(atoms), dtype=bool)
    if not all_atoms:
        for constraint in atoms.constraints:
            if isinstance(constraint, FixAtoms):
                free[constraint.index] = False
    if not free.any():
        raise UserError("all atoms are fixed; let them move with --all-atoms")
    indices: NDArray[np.int64] = np.flatnonzero(free)
    return indices


def ignored_constraints(atoms: Atoms) -> list[str]:
    """Name constraints that a vibration does not respect."""
    others = (c for c in atoms.constraints if not isinstance(c, FixAtoms))
    return sorted({type(constraint).__name__ for constraint in others})


def relaxed(
    atoms: Atoms, model: ForceField, head: str | None, fmax: float, max_steps: int = 500
) -> Atoms:
    """Return a copy moved to a minimum of the committee's mean energy (BFGS).

    Args:
        atoms: Where to start; constraints are respected.
        model: The force field.
        head: Name of the head, or None.
        fmax: Largest force allowed at the end, in eV/Angstrom.
        max_steps: When to give up.

    Raises:
        UserError: For ``fmax`` that is not positive, or when it is not reached.
    """
    if not 0 < fmax < np.inf:
        raise UserError(f"--relax takes a force above 0 in eV/Angstrom, not {fmax}")
    moved = atoms.copy()
    moved.calc = Calculator(model, head=head)
    optimizer: Any = BFGS(moved, logfile=None)
    if not optimizer.run(fmax=fmax, steps=max_steps):
        left = float(np.linalg.norm(moved.get_forces(), axis=1).max())
        raise UserError(
            f"the relaxation stopped after {max_steps} steps with a force of {left:.3g} "
            f"eV/Angstrom; allow more than --relax {fmax:g}, or start closer to a minimum"
        )
    return moved
