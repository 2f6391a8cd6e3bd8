"""ASE's integrators, with everything that a restart needs to go on exactly."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from ase import Atoms, units
from ase.md.langevin import Langevin
from ase.md.langevinbaoab import LangevinBAOAB
from ase.md.md import MolecularDynamics
from ase.md.verlet import VelocityVerlet

if TYPE_CHECKING:
    from gnnforce.simulation.settings import MDSettings

Ensemble = Literal["langevin", "nve", "npt"]

_BAROSTAT_TIMESTEPS = 1000  # relaxation time of the cell, in time steps


def make_integrator(
    atoms: Atoms, settings: "MDSettings", rng: np.random.Generator
) -> MolecularDynamics:
    """Return the integrator of an ensemble.

    ``langevin`` is ASE's ``Langevin`` without its fixed center of mass (which would not
    sample the canonical ensemble), ``nve`` is velocity Verlet, ``npt`` is
    ``LangevinBAOAB`` with isotropic changes of the cell.

    Args:
        atoms: The structure with its calculator and momenta.
        settings: Ensemble, time step, temperature, friction and pressure.
        rng: Source of the thermostat's noise.

    Returns:
        The integrator, about to make its first step.
    """
    timestep = settings.timestep_fs * units.fs
    friction = settings.friction_per_ps / (1000 * units.fs)
    if settings.ensemble == "nve":
        return VelocityVerlet(atoms, timestep)
    if settings.ensemble == "langevin":
        return Langevin(
            atoms,
            timestep,
            temperature_K=settings.temperature,
            friction=friction,
            fixcm=False,
            rng=rng,
        )
    relaxation = _BAROSTAT_TIMESTEPS * timestep
    return LangevinBAOAB(
        atoms,
        timestep,
        temperature_K=settings.temperature,
        externalstress=-settings.pressure_gpa * units.GPa,  # stress = -pressure
        hydrostatic=True,
        T_tau=1 / friction,
        P_tau=relaxation,
        P_mass=_barostat_mass(len(atoms), relaxation),
        rng=rng,
    )


def integrator_state(dynamics: MolecularDynamics) -> dict[str, float]:
    """Return what an integrator remembers beyond atoms and random numbers.

    Args:
        dynamics: An integrator of :func:`make_integrator`.

    Returns:
        Plain numbers by name; empty unless there is a barostat.
    """
    if isinstance(dynamics, LangevinBAOAB):
        return {
            "p_eps": float(dynamics.p_eps),
            "force_eps": float(dynamics.force_eps),
        }
    return {}


def restore_integrator(dynamics: MolecularDynamics, state: Mapping[str, Any]) -> None:
    """Put back what :func:`integrator_state` returned."""
    if isinstance(dynamics, LangevinBAOAB):
        dynamics.p_eps = state["p_eps"]
        dynamics.force_eps = state["force_eps"]


def _barostat_mass(n_atoms: int, relaxation: float) -> float:
    """Return ASE's own estimate for LangevinBAOAB, which it warns about when it uses it.

    A period of the cell of a quarter of the relaxation time, fitted to aluminum.
    """
    return float((relaxation / 4 / (1.66 * units.fs) * n_atoms ** (1 / 6)) ** 2)
