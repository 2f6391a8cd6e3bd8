import numpy as np
import pytest

from gnnforce.datasets.npz import read_npz
from gnnforce.errors import DataError

NUMBERS = [8, 1, 1]
POSITIONS = np.array([[[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]] * 2) + 0.125
POSITIONS[1] += 0.25
FORCES = np.arange(18.0).reshape(2, 3, 3) / 8


@pytest.fixture
def save(tmp_path):
    def save(**arrays):
        path = tmp_path / "data.npz"
        np.savez(path, **arrays)
        return path

    return save


@pytest.mark.parametrize("number_type", ["uint8", "int32", "int64", ">i4", "float64"])
@pytest.mark.parametrize("energy_shape", [(2,), (2, 1)])
def test_number_types(save, number_type, energy_shape):  # C32
    path = save(
        Z=np.array(NUMBERS, dtype=number_type),
        R=np.round(POSITIONS, 2).astype(">f4"),
        E=np.array([-1.0, -2.0]).reshape(energy_shape),
        F=FORCES.astype(">f4"),
    )
    frames = read_npz(path)
    assert [atoms.numbers.tolist() for atoms in frames] == [NUMBERS] * 2
    assert [atoms.info["energy"] for atoms in frames] == [-1.0, -2.0]
    assert all(isinstance(atoms.info["energy"], float) for atoms in frames)
    np.testing.assert_allclose(frames[1].positions, POSITIONS[1], atol=0.006)
    np.testing.assert_array_equal(frames[1].arrays["forces"], FORCES[1])
    assert frames[0].positions.dtype == np.float64


def test_cell_and_pbc_for_all_frames_or_each(save):
    one = save(pos=POSITIONS, atomic_numbers=NUMBERS, cell=np.eye(3) * 9, pbc=[True] * 3)
    assert all(atoms.pbc.all() and atoms.cell[1, 1] == 9 for atoms in read_npz(one))
    cells = np.stack([np.eye(3) * 8, np.eye(3) * 9])
    each = read_npz(
        save(pos=POSITIONS, atomic_numbers=[NUMBERS, NUMBERS[::-1]], cell=cells)
    )
    assert [atoms.cell[0, 0] for atoms in each] == [8, 9]
    assert each[1].numbers.tolist() == NUMBERS[::-1]
    assert not each[0].pbc.any()


def test_own_names_and_units(save):
    path = save(q=POSITIONS, species=NUMBERS, u=[1, 2], extra=[0])
    frames = read_npz(path, names={"positions": "q", "energy": "u"}, length_unit="nm")
    np.testing.assert_allclose(frames[0].positions, 10 * POSITIONS[0])
    assert frames[1].info["energy"] == 2.0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"R": POSITIONS}, "no array 'atomic_numbers' or .* the file has R"),
        ({"Z": NUMBERS, "R": POSITIONS[:, :, :2]}, "not \\(n_frames, n_atoms, 3\\)"),
        ({"Z": [8, 1], "R": POSITIONS}, "does not fit positions of 2 frames of 3 atoms"),
        ({"Z": [8, 1, 1.5], "R": POSITIONS}, "whole numbers"),
        ({"Z": NUMBERS, "R": POSITIONS, "E": [1.0]}, r"energy has the shape \(1,\)"),
        ({"Z": NUMBERS, "R": POSITIONS, "F": FORCES[:, :2]}, "forces has the shape"),
        ({"Z": ["O", "H", "H"], "R": POSITIONS}, "numbers is 'O', which is no number"),
    ],
)
def test_what_does_not_fit_is_refused(save, arrays, message):
    with pytest.raises(DataError, match=message):
        read_npz(save(**arrays))


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_npz(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(DataError, match="not a NumPy archive"):
        read_npz(tmp_path / "bad.npz")
