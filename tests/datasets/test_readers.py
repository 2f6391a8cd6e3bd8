import gzip
import os
import subprocess
import sys

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.singlepoint import SinglePointCalculator
from ase.db import connect
from ase.io import write as ase_write

from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError

FIVE = "".join(f"1\nnumber={n}\nH 0 0 {n}\n" for n in range(5))


@pytest.mark.parametrize(
    ("index", "numbers"),
    [(":", [0, 1, 2, 3, 4]), ("1:4:2", [1, 3]), ("-1", [4]), ("2", [2]), ("-2:", [3, 4])],
)
def test_index(write, index, numbers):
    frames = read_frames(write(FIVE), index)
    assert [atoms.info["number"] for atoms in frames] == numbers


def test_index_of_a_database(tmp_path):
    path = tmp_path / "five.db"
    with connect(str(path)) as db:
        for number in range(5):
            db.write(Atoms("H", [[0, 0, number]]))
    assert [a.positions[0, 2] for a in read_frames(path, "::-2")] == [4, 2, 0]


@pytest.mark.parametrize("index", ["one", "1:2:3:4", "", "1.5"])
def test_index_that_is_none(write, index):
    with pytest.raises(DataError, match="no slice of frames"):
        read_frames(write(FIVE), index)


def test_index_beyond_the_file(write):
    with pytest.raises(DataError, match="no frame 7; there are 5"):
        read_frames(write(FIVE), "7")
    with pytest.raises(DataError, match="no frames at '7:'"):
        read_frames(write(FIVE), "7:")


def test_damage_outside_the_chosen_frames_is_refused_too(write):
    with pytest.raises(DataError, match=r"frame 5 .*ends after 1 of 2"):
        read_frames(write(FIVE + "2\n\nH 0 0 0\n"), "0")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.xyz", b"", "empty.xyz is empty"),
        ("blank.xyz", b"\n\n", "no frames"),
        ("picture.xyz", b"\x89PNG\r\n\xff\xfe\x00", "picture.xyz"),
        ("notes.abc", b"hello", "notes.abc.*format"),
        ("bad.traj", b"hello", "bad.traj"),
        ("bad.db", b"hello there", "bad.db"),
        ("bad.json", b"{", "bad.json"),
        ("none.xyz", b"0\n\n", "frame 0 has no atoms"),
    ],
)
def test_bad_files_give_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_frames(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_frames(tmp_path / "none.xyz")
    with pytest.raises(DataError, match="is a folder"):
        read_frames(tmp_path)


def test_unit_of_positions_keeps_the_labels(write):
    text = '1\nLattice="9 0 0 0 9 0 0 0 9" energy=2\nH 0 0 1\n'
    atoms = read_frames(write(text), length_unit="Bohr")[0]
    assert atoms.positions[0, 2] == pytest.approx(units.Bohr)
    assert atoms.cell[0, 0] == pytest.approx(9 * units.Bohr)
    assert (
        extract_labels([atoms], [LabelSpec("energy")]).labels[0]["energy"].energy == 2.0
    )


def test_other_formats_with_their_labels(tmp_path):
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.8]], cell=[4, 4, 4], pbc=True)
    forces = np.array([[0, 0, 0.25], [0, 0, -0.25]])
    stress = np.arange(6.0) / 100
    atoms.calc = SinglePointCalculator(atoms, energy=-1.5, forces=forces, stress=stress)
    for name in ("a.traj", "a.xyz", "a.extxyz", "a.db", "a.json"):
        ase_write(tmp_path / name, atoms)
        table = extract_labels(read_frames(tmp_path / name), [LabelSpec("energy")])
        labels = table.labels[0]["energy"]
        assert labels.energy == -1.5
        np.testing.assert_allclose(labels.forces, forces)
        assert labels.stress[1, 2] == pytest.approx(0.03)


def test_compressed_file_and_name_with_an_at_sign(tmp_path):
    path = tmp_path / "run@2.xyz.gz"
    with gzip.open(path, "wt") as stream:
        stream.write(FIVE)
    assert len(read_frames(path)) == 5


def test_unknown_symbol_x_is_read_as_zero(write):  # C14: refused later, by name
    assert read_frames(write("1\n\nX 0 0 0\n"))[0].numbers.tolist() == [0]


def test_text_is_read_in_any_locale(tmp_path):
    path = tmp_path / "frames.xyz"
    path.write_text("1\nname=\u00fcn\u00ef\nH 0 0 0\n", encoding="utf-8")
    code = (
        "import sys; from gnnforce.datasets.readers import read_frames; "
        "print(ascii(read_frames(sys.argv[1])[0].info['name']))"
    )
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        env=os.environ | plain,
        check=True,
    )
    assert done.stdout.strip() == r"'\xfcn\xef'"


def test_a_damaged_archive_is_named_once(tmp_path):
    path = tmp_path / "frames.npz"
    path.write_bytes(b"abc")
    with pytest.raises(DataError) as caught:
        read_frames(path)
    assert str(caught.value).count(str(path)) == 1
