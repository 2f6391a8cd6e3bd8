import pytest
from ase import Atoms

from gnnforce.datasets.isolated import is_isolated, isolated_energies
from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.errors import DataError


def atom(symbol="H", energy=-13.6, cell=None, pbc=False, **info):
    return Atoms(symbol, [[0, 0, 0]], cell=cell, pbc=pbc, info={"energy": energy, **info})


def energies(frames, **options):
    table = extract_labels(frames, [LabelSpec("a")])
    return isolated_energies(frames, table, "a", **options)


@pytest.mark.parametrize(
    ("atoms", "alone"),
    [
        (atom(), True),
        (atom(charge=0), True),
        (atom(charge=1), False),  # C30
        (atom(charge=0.5), False),
        (atom(cell=[20, 20, 20], pbc=True), True),
        (atom(cell=[20, 20, 4], pbc=True), False),  # a crystal
        (atom(cell=[20, 20, 4], pbc=[True, True, False]), True),
        (Atoms("H2", [[0, 0, 0], [0, 0, 1]]), False),
    ],
)
def test_what_is_an_isolated_atom(atoms, alone):
    assert is_isolated(atoms) == alone


def test_frames_of_many_kinds(h2):
    frames = [
        h2(energy=-31.0),
        atom(config_type="IsolatedAtom"),
        atom(energy=0.0, charge=1),
        atom("Cu", -3.5, cell=[2.5, 2.5, 2.5], pbc=True),
        atom("O", -432.0, cell=[4, 4, 4], pbc=True, config_type="isolated_atom"),
    ]
    found = energies(frames)
    assert found.energies == {1: -13.6, 8: -432.0}
    assert found.rows == [1, 4]


def test_marked_frames_win():
    frames = [atom(energy=-12.0), atom(config_type="IsolatedAtom"), atom(energy=-13.0)]
    found = energies(frames)
    assert found.energies == {1: -13.6}
    assert found.rows == [1]


def test_frames_that_contradict_each_other():
    assert energies([atom(), atom(energy=-13.60001)]).rows == [0, 1]
    with pytest.raises(
        DataError, match=r"isolated H .*-13.6 eV in frame 0 and -12 eV in frame 1"
    ):
        energies([atom(), atom(energy=-12.0)])


def test_a_marked_molecule_is_refused(h2):
    with pytest.raises(
        DataError, match="frame 0 is meant as an isolated atom, but has 2"
    ):
        energies([h2(energy=-31.0, config_type="IsolatedAtom")])
    with pytest.raises(DataError, match="frame 1 is meant as an isolated atom"):
        energies([atom(), h2(energy=-31.0)], all_alone=True)


def test_frames_without_energy_give_nothing():
    frames = [atom(), atom("O")]
    del frames[1].info["energy"]
    assert energies(frames).energies == {1: -13.6}
