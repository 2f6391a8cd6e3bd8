import numpy as np
import pytest
from ase import Atoms

from gnnforce.datasets.choices import choose_keys
from gnnforce.datasets.frame_labels import Rules, read_labels
from gnnforce.datasets.keys import LabelSpec
from gnnforce.errors import DataError

STRESS = 0.01 * np.array([[1, 6, 5], [6, 2, 4], [5, 4, 3]])
VOLUME = 125.0


def read(atoms, spec=None, *, limit=1000.0, allow=()):
    spec = spec or LabelSpec("a")
    keys = choose_keys([atoms], [spec], ()).keys
    return read_labels(atoms, spec, keys, Rules(limit, frozenset(allow)))


def box(**info):
    return Atoms("H", [[0, 0, 0]], cell=[5, 5, 5], pbc=True, info=info)


@pytest.mark.parametrize(
    "info",
    [
        {"stress": STRESS},
        {"stress": STRESS.ravel().tolist()},
        {"stress": 0.01 * np.arange(1, 7)},
        {"REF_stress": STRESS.ravel()},
        {"virial": -VOLUME * STRESS},
        {"virial": (-VOLUME * STRESS).ravel()},
        {"REF_virial": -VOLUME * 0.01 * np.arange(1, 7)},
        {"stress": STRESS, "virial": -VOLUME * STRESS},
        {"stress": " ".join(f"{x:.4f}" for x in STRESS.ravel())},
    ],
)
def test_forms_of_stress_agree(info):  # C27
    np.testing.assert_allclose(read(box(**info)).stress, STRESS, rtol=1e-12)


def test_virial_has_the_opposite_sign():  # C27
    assert (-VOLUME * STRESS)[0, 0] == pytest.approx(-1.25)
    labels = read(box(virial=[-1.25, 0, 0, 0, 0, 0]))
    assert labels.stress[0, 0] == pytest.approx(0.01)


def test_left_handed_cell_has_a_positive_volume():
    atoms = box(virial=-VOLUME * STRESS)
    atoms.cell[:] = atoms.cell.array[[1, 0, 2]]
    np.testing.assert_allclose(read(atoms).stress, STRESS)


def test_contradictions_are_refused():  # C27
    unsymmetric = STRESS.copy()
    unsymmetric[1, 0] = 0.07
    with pytest.raises(DataError, match=r"stress of head 'a'.*not symmetric"):
        read(box(stress=unsymmetric))
    with pytest.raises(DataError, match="stress and virial of head 'a' contradict"):
        read(box(stress=STRESS, virial=VOLUME * STRESS))


@pytest.mark.parametrize(
    ("cell", "pbc", "missing"),
    [
        (None, False, "no cell"),
        ([5, 5, 5], False, "no periodic"),
        ([5, 5, 0], True, "no cell"),
    ],
)
def test_stress_without_a_cell_is_refused(cell, pbc, missing):  # C27
    atoms = Atoms("H", [[0, 0, 0]], cell=cell, pbc=pbc, info={"stress": STRESS})
    with pytest.raises(DataError, match=missing):
        read(atoms)
    atoms.info["stress"] = np.zeros(6)
    assert read(atoms).stress is None


def test_stress_units():
    spec = LabelSpec("a", stress_unit="GPa")
    np.testing.assert_allclose(
        read(box(stress=STRESS), spec).stress, STRESS / 160.21766208
    )
    spec = LabelSpec("a", energy_unit="Hartree", length_unit="Bohr")
    found = read(box(virial=-VOLUME * STRESS), spec).stress
    np.testing.assert_allclose(found, STRESS * 27.211386, rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-1, -1.0), (np.int64(-1), -1.0), ("-1.0D+02", -100.0), (np.array([-2.5]), -2.5)],
)
def test_energies_of_any_type(h2, value, expected):  # C32
    energy = read(h2(energy=value)).energy
    assert isinstance(energy, float)
    assert energy == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-1,5", "decimals with a point"),
        ([-1, 5], "2 values, where 1 fit"),
        ("high", "no number"),
        (np.nan, "is nan"),
        (-np.inf, "is infinite"),
    ],
)
def test_energies_that_are_refused(h2, value, reason):
    with pytest.raises(DataError, match=rf"energy of head 'a' \('energy'\).*{reason}"):
        read(h2(energy=value))


def test_states_of_energy_and_forces(h2):
    atoms = h2(energy=np.array([[1.0, 2.0, 3.0]]))
    atoms.arrays["forces"] = np.arange(18.0).reshape(2, 9)  # state, then xyz
    labels = read(atoms, LabelSpec("s1", energy="energy[1]", forces="forces[1]"))
    assert labels.energy == 2.0
    np.testing.assert_array_equal(labels.forces, [[3, 4, 5], [12, 13, 14]])
    with pytest.raises(DataError, match="has 3 states, counted from 0; there is no 3"):
        read(atoms, LabelSpec("s1", energy="energy[3]"))


def test_unknown_force_of_an_atom_is_masked_when_allowed(h2):
    atoms = h2(force=0.5)
    atoms.arrays["forces"][0, 1] = np.nan
    with pytest.raises(DataError, match="is nan; say in allow_nan"):
        read(atoms)
    labels = read(atoms, allow=["forces"])
    assert labels.forces_mask.tolist() == [False, True]
    np.testing.assert_array_equal(labels.forces, [[0, 0, 0], [0, 0, 0.5]])
    assert np.isnan(atoms.arrays["forces"][0, 1])  # the frame is as it was
    atoms.arrays["forces"][:] = np.nan
    assert read(atoms, allow=["forces"]).forces is None


def test_unknown_energy_when_allowed(h2):
    assert read(h2(energy=np.nan, force=1), allow=["energy"]).energy is None
    with pytest.raises(DataError, match="infinite"):
        read(h2(energy=np.inf), allow=["energy"])


def test_largest_force_is_limited(h2):  # C42
    with pytest.raises(
        DataError, match=r"1e\+04 eV/Ang on atom 0.*limit of 1000.*on_bad: drop"
    ):
        read(h2(force=1e4))
    assert read(h2(force=1e4), limit=np.inf).forces[1, 2] == 1e4
    assert read(h2(force=9.0), limit=9.0).forces is not None
    with pytest.raises(DataError, match="infinite"):
        read(h2(force=np.inf), limit=np.inf)


def test_units_in_the_frame_are_compared(h2):
    atoms = h2(energy=-0.5, force=0.02)
    atoms.info |= {"energy-unit": "hartree", "force-unit": "hartree/bohr"}
    with pytest.raises(DataError, match="set energy_unit to 'hartree'"):
        read(atoms)
    with pytest.raises(DataError, match="length_unit to 'bohr'"):
        read(atoms, LabelSpec("a", energy_unit="Hartree"))
    labels = read(atoms, LabelSpec("a", energy_unit="Hartree", length_unit="Bohr"))
    assert labels.forces[1, 2] == pytest.approx(0.02 * 51.42207, rel=1e-6)
    atoms.info["energy-unit"] = "eV/atom"
    with pytest.raises(DataError, match=r"'eV/atom'.*not known"):
        read(atoms)
