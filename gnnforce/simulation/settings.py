"""What a molecular dynamics run is asked to do, checked before it starts."""

from dataclasses import dataclass
from math import isfinite
from typing import get_args

from ase import Atoms

from gnnforce.errors import GeometryError, StressError, UserError, did_you_mean
from gnnforce.simulation.integrators import Ensemble


@dataclass(frozen=True)
class MDSettings:
    """Settings of a run, in the units of the names.

    Attributes:
        ensemble: ``"langevin"``, ``"nve"`` or ``"npt"``.
        temperature: In K; of the thermostat and of initial velocities.
        timestep_fs: Time step in fs.
        steps: Steps to make in this call.
        log_every: Steps between log lines and between frames.
        max_force_std: Limit of the force uncertainty in eV/Angstrom, or ``None``.
        seed: Of initial velocities and thermostat noise.
        friction_per_ps: Coupling to the thermostat in 1/ps.
        pressure_gpa: Of the barostat.

    Raises:
        UserError: For a value that makes no sense; one line each.

    Example:
        >>> MDSettings(timestep_fs=-1.0)
        Traceback (most recent call last):
        gnnforce.errors.UserError: timestep must be above 0 fs, not -1.0
    """

    ensemble: Ensemble = "langevin"
    temperature: float = 300.0
    timestep_fs: float = 0.5
    steps: int = 1000
    log_every: int = 10
    max_force_std: float | None = None
    seed: int = 0
    friction_per_ps: float = 10.0
    pressure_gpa: float = 0.0

    def __post_init__(self) -> None:
        """Check every value."""
        names = get_args(Ensemble)
        if self.ensemble not in names:
            raise UserError(
                f"unknown ensemble {self.ensemble!r}; there are {', '.join(names)}."
                + did_you_mean(str(self.ensemble), names)
            )
        _above_zero("timestep", self.timestep_fs, "fs")
        _above_zero("friction", self.friction_per_ps, "1/ps")
        for name, count in (("steps", self.steps), ("log_every", self.log_every)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise UserError(f"{name} must be a whole number >= 1, not {count!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UserError(f"seed must be a whole number >= 0, not {self.seed!r}")
        if self.max_force_std is not None:
            _above_zero("max_force_std", self.max_force_std, "eV/Angstrom")
        cold = self.ensemble == "npt" and self.temperature == 0
        if not (isfinite(self.temperature) and self.temperature >= 0) or cold:
            bound = "above 0 K for npt" if self.ensemble == "npt" else "0 K or more"
            raise UserError(f"temperature must be {bound}, not {self.temperature!r}")
        if not isfinite(self.pressure_gpa):
            raise UserError(f"pressure must be a number in GPa, not {self.pressure_gpa}")

    def check_structure(self, atoms: Atoms) -> None:
        """Check that this ensemble exists for a structure.

        Raises:
            GeometryError: For no atoms, or constraints under npt.
            StressError: For npt without three periodic directions and a volume.
        """
        if len(atoms) == 0:
            raise GeometryError("there are no atoms to move")
        if self.ensemble != "npt":
            return
        if not atoms.pbc.all() or atoms.cell.rank < 3:
            raise StressError(
                "npt needs a structure that is periodic in three directions; pbc is "
                f"{atoms.pbc.tolist()}. Use langevin or nve for a molecule or a slab"
            )
        if atoms.constraints:
            raise GeometryError("npt does not support constraints; remove them")


def _above_zero(name: str, value: float, unit: str) -> None:
    if not (isfinite(value) and value > 0):
        raise UserError(f"{name} must be above 0 {unit}, not {value!r}")
