"""Molecular dynamics that knows how far its forces can be trusted."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from ase import Atoms
from ase.calculators.calculator import BaseCalculator, CalculationFailed
from ase.md.md import MolecularDynamics
from numpy.typing import NDArray

from gnnforce.calculators.ase import Calculator
from gnnforce.errors import DataError, GeometryError
from gnnforce.models.force_field import ForceField
from gnnforce.simulation import files as names
from gnnforce.simulation.files import RunFiles, State, read_log
from gnnforce.simulation.integrators import (
    Ensemble,
    integrator_state,
    make_integrator,
    restore_integrator,
)
from gnnforce.simulation.monitor import (
    Record,
    UnstableError,
    check_limit,
    observe,
    snapshot,
)
from gnnforce.simulation.settings import MDSettings
from gnnforce.simulation.velocities import set_velocities

Progress = Callable[[int, int, Record], None]
_STATE_EVERY = 100  # steps between restart files, at least


@dataclass(frozen=True)
class MDResult:
    """How a run ended.

    Attributes:
        atoms: The last good frame, with momenta and results.
        step: Steps made since the start, those before a restart included.
        reason: ``"finished"``, ``"uncertain"`` (the force uncertainty passed its limit)
            or ``"unstable"`` (numbers stopped being finite, or atoms fell together).
        message: One sentence for people.
        folder: Where the files are.
    """

    atoms: Atoms
    step: int
    reason: Literal["finished", "uncertain", "unstable"]
    message: str
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether all steps were made."""
        return self.reason == "finished"

    def log(self) -> dict[str, NDArray[np.float64]]:
        """Return the log, one array a column."""
        return read_log(self.folder)


def run_md(  # noqa: PLR0913  (every setting is by name; MDSettings checks them)
    atoms: Atoms,
    model_or_calc: str | Path | ForceField | BaseCalculator,
    *,
    folder: str | Path,
    ensemble: Ensemble = "langevin",
    temperature: float = 300.0,
    timestep_fs: float = 0.5,
    steps: int = 1000,
    log_every: int = 10,
    max_force_std: float | None = None,
    seed: int = 0,
    restart: bool = False,
    progress: Progress | None = None,
    friction_per_ps: float = 10.0,
    pressure_gpa: float = 0.0,
) -> MDResult:
    """Run molecular dynamics and write down energies, temperature and uncertainty.

    The folder gets ``md.csv`` (columns of :func:`~gnnforce.simulation.monitor.observe`,
    from step 0 every ``log_every`` steps), ``trajectory.extxyz`` (the same steps, with
    energy, forces, momenta and, for a committee, ``forces_std``), ``restart.json`` and
    ``final.xyz``. Files of an earlier run are moved to ``previous_1`` and so on.

    The uncertainty is checked at every step. When its largest component passes
    ``max_force_std`` the run stops and writes ``uncertain.xyz``. When numbers stop being
    finite, or the model refuses the structure (atoms on top of each other), the run
    stops and writes the frame before to ``last_good.xyz``. A structure that cannot even
    be started from raises instead.

    With ``restart`` the run in the folder goes on for ``steps`` MORE steps, exactly as if
    it had not been interrupted: 10 steps and a restart of 10 are 20 steps.

    Args:
        atoms: Start; not changed. Velocities are drawn if it has none. At a restart it
            gives elements, masses and constraints, the rest comes from the folder.
        model_or_calc: A model file, a model, or any ASE calculator.
        folder: Where to write; made if it is not there.
        ensemble: ``"langevin"`` (NVT), ``"nve"``, or ``"npt"`` (isotropic, Langevin).
        temperature: In K.
        timestep_fs: In fs.
        steps: Steps to make.
        log_every: Steps between lines of the log and frames of the trajectory.
        max_force_std: Limit of the force uncertainty in eV/Angstrom.
        seed: Of velocities and noise; the generator is the run's own.
        restart: Go on with the run in the folder.
        progress: Called after every step as ``progress(step, last_step, record)``.
        friction_per_ps: Coupling to the thermostat in 1/ps.
        pressure_gpa: Of the barostat, in GPa.

    Returns:
        The last frame and how the run ended.

    Raises:
        UserError: For settings that make no sense, npt without a volume, a limit without
            a committee, a structure the model refuses, nothing to restart from.
    """
    settings = MDSettings(
        ensemble=ensemble,
        temperature=temperature,
        timestep_fs=timestep_fs,
        steps=steps,
        log_every=log_every,
        max_force_std=max_force_std,
        seed=seed,
        friction_per_ps=friction_per_ps,
        pressure_gpa=pressure_gpa,
    )
    settings.check_structure(atoms)
    moving = atoms.copy()
    moving.calc = _calculator(model_or_calc)
    run = _Run(moving, settings, RunFiles(folder))
    record = run.resume() if restart else run.start()
    return run.advance(record, progress)


class _Run:
    """A run in progress: the moving atoms, their integrator and the files."""

    def __init__(self, atoms: Atoms, settings: MDSettings, files: RunFiles) -> None:
        self.atoms = atoms
        self.settings = settings
        self.files = files
        self.rng = np.random.default_rng(settings.seed)
        self.step = 0
        self.dynamics: MolecularDynamics

    def start(self) -> Record:
        """Set velocities, look at the first frame and open the files."""
        set_velocities(self.atoms, self.settings.temperature, self.rng)
        record = self._first_look()
        self.dynamics = make_integrator(self.atoms, self.settings, self.rng)
        self.files.set_aside()
        self._write(record, snapshot(self.atoms, record))
        self._save()
        return record

    def resume(self) -> Record:
        """Put back the state of the folder."""
        state = self.files.load_state()
        self._check_same(state)
        self.step = state.step
        self.atoms.set_cell(state.cell)
        self.atoms.positions[:] = state.positions  # constraints must not interfere
        self.atoms.set_momenta(np.array(state.momenta), apply_constraint=False)
        record = self._first_look()
        self.dynamics = make_integrator(self.atoms, self.settings, self.rng)
        restore_integrator(self.dynamics, state.integrator)
        self.rng.bit_generator.state = state.rng
        return record

    def advance(self, record: Record, progress: Progress | None) -> MDResult:
        """Make the steps, or stop early."""
        frame = snapshot(self.atoms, record)
        last = self.step + self.settings.steps
        while True:
            stop = check_limit(record, self.settings.max_force_std)
            if stop is not None:
                return self._stop_uncertain(record, frame, stop)
            if self.step == last:
                return self._finish(frame)
            try:
                self.dynamics.step()  # type: ignore[attr-defined]
                self.dynamics.nsteps += 1
                record = observe(self.atoms, self.step + 1, self.settings.timestep_fs)
            except (UnstableError, CalculationFailed, GeometryError) as error:
                return self._stop_unstable(frame, error)
            self.step += 1
            frame = snapshot(self.atoms, record)
            if self.step % self.settings.log_every == 0:
                self._write(record, frame)
            if self.step % _STATE_EVERY == 0:
                self._save()
            if progress is not None:
                progress(self.step, last, record)

    def _first_look(self) -> Record:
        try:
            record = observe(self.atoms, self.step, self.settings.timestep_fs)
        except (UnstableError, CalculationFailed) as error:
            raise GeometryError(f"the run cannot start: {error}") from error
        check_limit(record, self.settings.max_force_std)  # refuses a missing committee
        return record

    def _write(self, record: Record, frame: Atoms) -> None:
        self.files.log(record)
        self.files.append_frame(frame)

    def _save(self) -> None:
        self.files.save_state(
            State(
                step=self.step,
                ensemble=self.settings.ensemble,
                timestep_fs=self.settings.timestep_fs,
                numbers=self.atoms.numbers.tolist(),
                positions=self.atoms.positions.tolist(),
                momenta=self.atoms.get_momenta().tolist(),
                cell=self.atoms.cell.array.tolist(),
                rng=dict(self.rng.bit_generator.state),
                integrator=integrator_state(self.dynamics),
                sizes=self.files.sizes(),
            )
        )

    def _check_same(self, state: State) -> None:
        asked = (self.settings.ensemble, self.settings.timestep_fs)
        if (state.ensemble, state.timestep_fs) != asked:
            raise DataError(
                f"the run in {self.files.folder} is {state.ensemble} with "
                f"{state.timestep_fs:g} fs, not {asked[0]} with {asked[1]:g} fs"
            )
        if self.atoms.numbers.tolist() != state.numbers:
            raise DataError(
                f"the run in {self.files.folder} has {len(state.numbers)} atoms of other "
                f"elements or in another order than the {len(self.atoms)} given"
            )

    def _finish(self, frame: Atoms) -> MDResult:
        self._save()
        self.files.write_frame(names.FINAL, frame)
        message = f"finished {self.step} steps"
        return MDResult(frame, self.step, "finished", message, self.files.folder)

    def _stop_uncertain(self, record: Record, frame: Atoms, why: str) -> MDResult:
        if self.step % self.settings.log_every:
            self.files.log(record)
        self._save()
        path = self.files.write_frame(names.UNCERTAIN, frame)
        self.files.write_frame(names.FINAL, frame)
        message = f"{why}; that frame is in {path}"
        return MDResult(frame, self.step, "uncertain", message, self.files.folder)

    def _stop_unstable(self, frame: Atoms, error: Exception) -> MDResult:
        path = self.files.write_frame(names.LAST_GOOD, frame)
        message = (
            f"stopped at step {self.step + 1}: {error}; the frame before is in {path}. "
            "Try a shorter time step, or train on structures like it"
        )
        return MDResult(frame, self.step, "unstable", message, self.files.folder)


def _calculator(
    model_or_calc: str | Path | ForceField | BaseCalculator,
) -> BaseCalculator:
    if isinstance(model_or_calc, BaseCalculator):
        return model_or_calc
    return Calculator(model_or_calc)
