"""What is known at every step of a run: energies, temperature, uncertainty, limits."""

from collections.abc import Mapping

import numpy as np
from ase import Atoms, units
from ase.calculators.singlepoint import SinglePointCalculator

from gnnforce.errors import StatisticsError
from gnnforce.graph.convert import CHARGE_KEYS, SPIN_KEYS

Record = dict[str, float]


class UnstableError(Exception):
    """Energy, forces or positions stopped being finite numbers."""


def observe(atoms: Atoms, step: int, timestep_fs: float) -> Record:
    """Return what is known about the current step.

    Args:
        atoms: The moving structure with its calculator.
        step: Steps since the start of the run.
        timestep_fs: In fs.

    Returns:
        ``step``, ``time_fs``, ``epot``, ``ekin``, ``etot`` (eV), ``temperature`` (K, of
        3N degrees of freedom less constraints); for a committee ``energy_std`` (eV) and
        the largest and the mean component of the force standard deviations,
        ``forces_std_max`` and ``forces_std_mean`` (eV/Angstrom); for a structure with a
        stress and three periodic directions ``volume`` (Angstrom^3) and ``pressure``
        (GPa, with the kinetic part).

    Raises:
        UnstableError: When energy, forces, positions or momenta are not finite.
    """
    forces = atoms.get_forces(apply_constraint=False)
    epot, ekin = float(atoms.get_potential_energy()), float(atoms.get_kinetic_energy())
    known = {"energy": epot, "kinetic energy": ekin}
    for name, value in (*known.items(), ("forces", forces), ("cell", atoms.cell.array)):
        if not np.isfinite(value).all():
            raise UnstableError(f"the {name} is not finite")
    record: Record = {
        "step": step,
        "time_fs": step * timestep_fs,
        "epot": epot,
        "ekin": ekin,
        "etot": epot + ekin,
        "temperature": float(atoms.get_temperature()),
    }
    results: Mapping[str, float] = atoms.calc.results
    if "forces_std" in results:
        record["energy_std"] = float(results["energy_std"])
        record["forces_std_max"] = float(np.max(results["forces_std"]))
        record["forces_std_mean"] = float(np.mean(results["forces_std"]))
    if atoms.pbc.all() and "stress" in results:
        stress = atoms.get_stress(include_ideal_gas=True)
        record["volume"] = float(atoms.get_volume())
        record["pressure"] = float(-stress[:3].mean() / units.GPa)
    return record


def check_limit(record: Record, limit: float | None) -> str | None:
    """Return why the run has to stop, or ``None``.

    Args:
        record: Of :func:`observe`.
        limit: Largest allowed ``forces_std_max`` in eV/Angstrom, or ``None``.

    Returns:
        A sentence, or ``None`` while the limit is kept.

    Raises:
        StatisticsError: When there is a limit but no committee to estimate the error.

    Example:
        >>> check_limit({"step": 3, "time_fs": 1.5, "forces_std_max": 0.1}, 0.2)
    """
    if limit is None:
        return None
    if "forces_std_max" not in record:
        raise StatisticsError(
            "max_force_std needs a head with at least two members; this calculator has "
            "no forces_std"
        )
    if record["forces_std_max"] <= limit:
        return None
    return (
        f"stopped at step {record['step']:.0f} ({record['time_fs']:g} fs): the largest "
        f"force uncertainty {record['forces_std_max']:.4g} eV/Angstrom is above the "
        f"limit {limit:g}"
    )


def snapshot(atoms: Atoms, record: Record) -> Atoms:
    """Return the current frame with results, ready to be written.

    Args:
        atoms: The moving structure with its calculator.
        record: Of :func:`observe`; goes to ``info`` except for the energies.

    Returns:
        A structure with momenta, a ``SinglePointCalculator`` holding ``energy``,
        ``forces`` and, where it exists, ``stress``, and for a committee the array
        ``forces_std``. Labels of the starting file are left out: they would be wrong.
    """
    frame = _bare_copy(atoms)
    frame.info["step"] = int(record["step"])
    for key in ("time_fs", "temperature", "energy_std"):
        if key in record:
            frame.info[key] = record[key]
    results = atoms.calc.results
    if "forces_std" in results:
        frame.set_array("forces_std", np.array(results["forces_std"]))
    kept = {"energy": record["epot"], "forces": np.array(results["forces"])}
    if "stress" in results:
        kept["stress"] = np.array(results["stress"])
    frame.calc = SinglePointCalculator(frame, **kept)
    return frame


def _bare_copy(atoms: Atoms) -> Atoms:
    """Copy what the dynamics and the model know of, and no label of the input."""
    bare = Atoms(
        numbers=atoms.numbers,
        positions=atoms.positions,
        cell=atoms.cell,
        pbc=atoms.pbc,
        momenta=atoms.get_momenta(),
        constraint=list(atoms.copy().constraints),
    )
    for key in ("masses", "tags"):
        if atoms.has(key):
            bare.set_array(key, atoms.get_array(key))
    for key in (*CHARGE_KEYS, *SPIN_KEYS):
        if key in atoms.info:
            bare.info[key] = atoms.info[key]
    return bare
