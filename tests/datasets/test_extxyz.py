from io import StringIO

import numpy as np
import pytest

from gnnforce.datasets.extxyz import parse_comment, parse_frame, split_frames_text
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError

CELL = 'Lattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3'


def frames_of(text):
    return [parse_frame(frame) for frame in split_frames_text(StringIO(text))]


def test_blank_lines_do_not_end_the_file():
    text = "1\na=1\nH 0 0 0\n\n\n1\na=2\nH 0 0 1\n\n"
    assert [atoms.info["a"] for atoms in frames_of(text)] == [1, 2]


def test_marks_and_line_ends_of_editors(tmp_path):
    path = tmp_path / "windows.xyz"
    path.write_bytes("\ufeff1\r\na=1\r\nH\t0\t0\t2\r\n".encode())
    atoms = read_frames(path)[0]
    assert atoms.info["a"] == 1
    assert atoms.positions[0, 2] == 2


def test_line_numbers_are_those_of_the_file():
    text = "1\na=1\nH 0 0 0\n\n1\na=2\nH 0 0 1\n"
    assert [frame.line for frame in split_frames_text(StringIO(text))] == [1, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n\nH 0 0 0\n2\n\nH 0 0 0\n", r"frame 1 \(line 4\).*ends after 1 of 2 atoms"),
        ("1\n\nH 0 0 0\n2\n", r"frame 1 .*ends after 0 of 2"),
        ("1\n\nH 0 0 0\nH 0 0 1\n", r"frame 1 \(line 4\).*expected the number of atoms"),
        ("1\n\nH 0 0\n", "atom 0 has 3 columns where the header names 4"),
        ("1\n\nH 0 zero 0\n", "frame 0.*zero"),
        ("1\n\nQq 0 0 0\n", "'Qq' is no element"),
        ('1\nLattice="1 2 3"\nH 0 0 0\n', "frame 0.*Lattice"),
        ("1\nProperties=species:S:1:pos:R:3\nH 0 0 0 7\n", "has 5 columns"),
        ("1\nProperties=species:S:1:pos:Q:3\nH 0 0 0\n", "frame 0.*property type"),
    ],
)
def test_damage_is_refused_with_the_frame(text, message):
    with pytest.raises(DataError, match=message):
        frames_of(text)


def test_a_huge_count_at_the_end_is_refused_at_once():
    with pytest.raises(DataError, match="ends after 1 of 9999999999"):
        frames_of("9999999999\n\nH 0 0 0\n")


def test_plain_xyz_may_have_more_columns():
    atoms = frames_of("1\nwater\nH 0 0 0 0.4\n")[0]
    assert atoms.positions.shape == (1, 3)


def test_fortran_numbers_in_columns():  # C32
    text = (
        "1\nProperties=species:S:1:pos:R:3:forces:R:3\nH 0.1D+01 0 0 -1.0D+02 0 1.5d-1\n"
    )
    atoms = frames_of(text)[0]
    np.testing.assert_array_equal(atoms.positions, [[1.0, 0, 0]])
    np.testing.assert_array_equal(atoms.calc.results["forces"], [[-100.0, 0, 0.15]])


def test_six_number_stress_that_ase_refuses():  # C27
    nine = f'1\n{CELL} stress="1 6 5 6 2 4 5 4 3"\nH 0 0 0\n'
    six = f'1\n{CELL} stress="1 2 3 4 5 6"\nH 0 0 0\n'
    for text in (nine, six):
        atoms = frames_of(text)[0]
        np.testing.assert_array_equal(atoms.calc.results["stress"], [1, 2, 3, 4, 5, 6])
        assert set(atoms.info) == set()


def test_virial_of_six_numbers_becomes_a_matrix():
    atoms = frames_of(f'1\n{CELL} virial="1 2 3 4 5 6"\nH 0 0 0\n')[0]
    np.testing.assert_array_equal(atoms.info["virial"], [[1, 6, 5], [6, 2, 4], [5, 4, 3]])


def test_unsymmetric_stress_is_kept_as_it_is():
    atoms = frames_of(f'1\n{CELL} energy=1 stress="1 6 5 7 2 4 5 4 3"\nH 0 0 0\n')[0]
    assert atoms.info["stress"][0, 1] != atoms.info["stress"][1, 0]
    assert "stress" not in atoms.calc.results


def test_comment_line():
    found = parse_comment(
        'energy=-1 shift=-1,5 list="1 2" note="the stress = high" stress=7'
    )
    assert found["energy"] == -1
    assert found["shift"] == "-1,5"
    assert found["list"].tolist() == [1, 2]
    assert found["note"] == "the stress = high"
    assert found["gnnforce_held_stress"] == 7


def test_cell_vectors_in_rows_of_their_own():
    text = "1\nx\nH 0 0 0\nVEC1 4 0 0\nVEC2 0 5 0\nVEC3 0 0 6\n1\n\nH 0 0 1\n"
    crystal, atom = frames_of(text)
    assert crystal.cell.lengths().tolist() == [4, 5, 6]
    assert crystal.pbc.all()
    assert not atom.pbc.any()


def test_agrees_with_ase(tmp_path):
    from ase.build import bulk
    from ase.calculators.emt import EMT
    from ase.io import read, write

    frames = []
    for strain in (1.0, 1.02):
        atoms = bulk("Cu", cubic=True) * (1, 1, 2)
        atoms.rattle(0.05, seed=1)
        atoms.set_cell(atoms.cell * strain, scale_atoms=True)
        atoms.calc = EMT()
        atoms.get_stress()
        atoms.info["name"] = "two words"
        frames.append(atoms)
    path = tmp_path / "cu.xyz"
    write(path, frames)
    for ours, theirs in zip(frames_of(path.read_text()), read(path, ":"), strict=True):
        assert ours == theirs
        assert ours.info == theirs.info
        assert set(ours.calc.results) == set(theirs.calc.results)
        for key, value in theirs.calc.results.items():
            np.testing.assert_allclose(ours.calc.results[key], value, atol=1e-15)
