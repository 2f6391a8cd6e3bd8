"""Lists of pymatgen structures with VASP outputs, as some published data sets are."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units

from gnnforce.datasets.elements import atomic_number
from gnnforce.datasets.values import as_floats
from gnnforce.errors import ConfigError, DataError

KBAR = 0.1 * units.GPa  # in eV/Angstrom^3
_ORDER = (0, 1, 2, 4, 5, 3)  # VASP writes xx yy zz xy yz zx; wanted xx yy zz yz xz xy


def is_pymatgen(path: Path) -> bool:
    """Tell whether a JSON file is a list of pymatgen structures."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        beginning = stream.read(1000)
    return beginning.lstrip().startswith("[") and "pymatgen" in beginning


def read_pymatgen(path: Path) -> Iterator[Atoms]:
    r"""Yield the structures of a list of ``{"structure": ..., "outputs": ...}``.

    ``outputs.energy`` (eV) and ``outputs.forces`` (eV/Angstrom) become labels of these
    names. ``outputs.virial_stress`` is in kbar, in VASP's order, and positive under
    compression; it becomes ``info["stress"]`` in eV/Angstrom^3 and ASE's sign and order,

    .. math:: \sigma = -S / 1602.1766

    Args:
        path: The file.

    Raises:
        DataError: Names the frame that cannot be read.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"is no JSON ({error})") from error
    for number, entry in enumerate(entries):
        try:
            yield _frame(entry)
        except (KeyError, TypeError, ValueError, DataError, ConfigError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"frame {number}: {reason}") from error


def _frame(entry: Mapping[str, Any]) -> Atoms:
    structure, outputs = entry["structure"], entry.get("outputs", {})
    sites = structure["sites"]
    species = [site["species"] for site in sites]
    if any(len(kinds) != 1 or kinds[0]["occu"] != 1 for kinds in species):
        raise DataError("a site is shared by several elements")
    atoms = Atoms(
        numbers=[atomic_number(kinds[0]["element"]) for kinds in species],
        positions=[site["xyz"] for site in sites],
        cell=structure["lattice"]["matrix"],
        pbc=True,
    )
    if "energy" in outputs:
        atoms.info["energy"] = float(as_floats(outputs["energy"]))
    if "forces" in outputs:
        atoms.arrays["forces"] = as_floats(outputs["forces"]).reshape(len(atoms), 3)
    if "virial_stress" in outputs:
        given = as_floats(outputs["virial_stress"]).reshape(6)
        atoms.info["stress"] = -KBAR * given[np.array(_ORDER)]
    for key in ("tag", "group"):
        if key in entry:
            atoms.info[key] = entry[key]
    return atoms
