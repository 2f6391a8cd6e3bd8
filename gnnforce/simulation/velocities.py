"""Initial velocities."""

import numpy as np
from ase import Atoms, units
from ase.md.velocitydistribution import Stationary


def set_velocities(atoms: Atoms, temperature: float, rng: np.random.Generator) -> None:
    r"""Draw momenta from the Maxwell-Boltzmann distribution if there are none.

    .. math:: p_i \sim \mathcal N(0, m_i k_B T)

    Atoms that already move keep their momenta. The motion of the center of mass is
    taken out, for a structure that is not periodic its rotation too; the energy taken
    out is not put back, so that each remaining mode holds its share. Constraints are
    respected, and nothing is taken out where there are any.

    Args:
        atoms: The structure, changed in place.
        temperature: In K.
        rng: Source of random numbers.

    Example:
        >>> from ase.build import molecule
        >>> atoms = molecule("CH4")
        >>> set_velocities(atoms, 300.0, np.random.default_rng(0))
        >>> bool(abs(atoms.get_momenta().sum(axis=0)).max() < 1e-12)
        True
    """
    if atoms.has("momenta") and np.any(atoms.get_momenta()):
        return
    width = np.sqrt(atoms.get_masses() * units.kB * temperature)[:, None]
    atoms.set_momenta(rng.standard_normal((len(atoms), 3)) * width)
    if len(atoms) == 1 or atoms.constraints:
        return
    Stationary(atoms, preserve_temperature=False)
    if not atoms.pbc.any():
        _stop_rotation(atoms)


def _stop_rotation(atoms: Atoms) -> None:
    r"""Take out :math:`\omega = I^{+} L`; linear molecules have no inverse of I."""
    center = atoms.get_center_of_mass()
    arms = atoms.positions - center
    weights = atoms.get_masses()[:, None, None]
    squares = (arms**2).sum(axis=1)[:, None, None] * np.eye(3)
    inertia = (weights * (squares - arms[:, :, None] * arms[:, None, :])).sum(axis=0)
    turning = atoms.get_angular_momentum()
    omega = np.linalg.pinv(inertia, rcond=1e-10, hermitian=True) @ turning
    atoms.set_velocities(atoms.get_velocities() - np.cross(omega, arms))
