"""ASE databases, with what SchNetPack and others keep beside the structures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.db import connect

from gnnforce.datasets.units import length_factor
from gnnforce.errors import DataError

_HEADER_UNITS = {"energy": "energy-unit", "forces": "force-unit"}


def read_database(path: Path, numbers: range | None = None) -> Iterator[Atoms]:
    """Yield the structures of an ASE database in the order of their rows.

    Key-value pairs and data of a row are put into ``info``. Where the metadata state
    the unit of length (``_distance_unit``), positions and cell are turned into
    Angstrom; the units stated for energy and forces are kept as ``energy-unit`` and
    ``force-unit`` in ``info``, and compared with those asked for when labels are read.

    Args:
        path: The database.
        numbers: Rows to read, counted from 0; all when None.

    Raises:
        DataError: Names the row that cannot be read.
    """
    database = connect(str(path))
    with database:  # older versions of ASE read metadata of an open connection only
        metadata = dict(database.metadata)
    factor = _length(metadata)
    units = metadata.get("_property_unit_dict") or {}
    header = {
        name: str(units[key]) for key, name in _HEADER_UNITS.items() if key in units
    }
    wanted = None if numbers is None else set(numbers)
    for number, row in enumerate(database.select(sort="id")):
        if wanted is not None and number not in wanted:
            continue
        try:
            atoms: Atoms = row.toatoms()
            atoms.info.update(header | dict(row.key_value_pairs) | dict(row.data))
        except Exception as error:
            raise DataError(f"frame {number} (row {row.id}): {error}") from error
        if factor != 1.0:
            atoms.positions *= factor
            atoms.cell[:] *= factor
            if atoms.calc is not None:
                atoms.calc.atoms = atoms.copy()
        yield atoms


def count_rows(path: Path) -> int:
    """Return the number of rows of an ASE database."""
    return int(connect(str(path)).count())


def _length(metadata: dict[str, Any]) -> float:
    word = metadata.get("_distance_unit")
    return 1.0 if word is None else length_factor(str(word))
