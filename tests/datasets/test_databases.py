import numpy as np
import pytest
from ase import Atoms, units
from ase.db import connect

from gnnforce.datasets.databases import count_rows, read_database
from gnnforce.errors import DataError


@pytest.fixture
def database(tmp_path):
    def make(metadata=None):
        path = tmp_path / "states.db"
        with connect(str(path)) as db:
            for number in range(3):
                atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.0 + number]])
                data = {
                    "energy": np.array([[-1.0, -0.5, number]]),
                    "forces": np.ones((2, 3, 3)),
                }
                db.write(atoms, data=data, name=f"row{number}")
            if metadata:
                db.metadata = metadata
        return path

    return make


def test_data_of_rows_are_kept_in_order(database):
    path = database()
    assert count_rows(path) == 3
    frames = list(read_database(path))
    assert [atoms.info["name"] for atoms in frames] == ["row0", "row1", "row2"]
    np.testing.assert_array_equal(frames[2].info["energy"], [[-1, -0.5, 2]])
    assert frames[0].info["forces"].shape == (2, 3, 3)


def test_units_stated_in_the_metadata(database):
    stated = {"energy": "Hartree", "forces": "Hartree/Bohr"}
    path = database({"_distance_unit": "Bohr", "_property_unit_dict": stated})
    atoms = next(read_database(path))
    assert atoms.positions[1, 2] == pytest.approx(units.Bohr)
    assert atoms.info["energy-unit"] == "Hartree"
    assert atoms.info["force-unit"] == "Hartree/Bohr"


def test_unknown_unit_of_length_is_refused(database):
    with pytest.raises(DataError, match="unknown unit of length 'mile'"):
        next(read_database(database({"_distance_unit": "mile"})))


def test_chosen_rows(database):
    frames = list(read_database(database(), range(1, 3)))
    assert [atoms.info["name"] for atoms in frames] == ["row1", "row2"]
