import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms

from gnnforce.datasets.keys import (
    KeyChoice,
    LabelSpec,
    count_keys,
    find_label,
    missing_key,
    parse_key,
)
from gnnforce.errors import DataError


def find(atoms, text):
    return find_label(atoms, parse_key(text))


def in_calculator(atoms, **results):
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def test_units_of_a_spec():
    spec = LabelSpec("a", energy_unit="Hartree", length_unit="Bohr")
    assert spec.factor("energy") == spec.factor("virial") == pytest.approx(27.211386)
    assert spec.factor("forces") == pytest.approx(51.42207, rel=1e-6)
    assert spec.factor("stress") == pytest.approx(183.6315, rel=1e-6)
    assert LabelSpec("a", stress_unit="GPa").factor("stress") == pytest.approx(
        1 / 160.21766
    )


@pytest.mark.parametrize("option", ["energy_unit", "length_unit", "stress_unit"])
def test_unknown_unit_is_refused_at_once(option):  # C28
    with pytest.raises(DataError, match=r"unknown unit of .* 'kcol/mol'"):
        LabelSpec("a", **{option: "kcol/mol"})


def test_parts_of_a_key():
    assert parse_key("energy") == KeyChoice("energy", None, "energy")
    assert parse_key("calculator:e[3]") == KeyChoice(
        "calculator:e[3]", "calculator", "e", 3
    )
    assert parse_key("my:own[x]").name == "my:own[x]"


def test_labels_in_all_places(h2):
    atoms = in_calculator(h2(REF_energy=-1.0), energy=-2.0, forces=np.ones((2, 3)))
    atoms.arrays["REF_forces"] = np.zeros((2, 3))
    assert find(atoms, "REF_energy") == -1.0
    assert find(atoms, "energy") == -2.0
    assert find(atoms, "forces")[0, 0] == 1.0
    assert find(atoms, "REF_forces")[0, 0] == 0.0
    assert find(atoms, "info:energy") is None
    assert find(atoms, "nothing") is None


def test_two_places_that_differ(h2):
    atoms = in_calculator(h2(energy=-1.0), energy=-2.0)
    with pytest.raises(
        DataError, match="two different values of 'energy', in info and in c"
    ):
        find(atoms, "energy")
    assert find(atoms, "info:energy") == -1.0
    assert find(atoms, "calculator:energy") == -2.0
    assert find(in_calculator(h2(energy=-2.0), energy=np.float64(-2)), "energy") == -2.0


def test_constraints_do_not_touch_forces(h2):
    atoms = in_calculator(h2(), forces=np.ones((2, 3)))
    atoms.set_constraint(FixAtoms([0]))
    np.testing.assert_array_equal(find(atoms, "forces"), np.ones((2, 3)))
    assert atoms.get_forces()[0, 0] == 0  # what ASE would have said


def test_nothing_is_computed(h2):
    atoms = h2()
    atoms.calc = EMT()
    assert find(atoms, "energy") is None
    assert count_keys([atoms])["calculator"] == {}


def test_results_of_other_positions_are_refused(h2):
    atoms = in_calculator(h2(), energy=-1.0)
    atoms.positions[1, 2] += 0.01
    with pytest.raises(DataError, match="was moved after"):
        find(atoms, "energy")
    atoms = in_calculator(h2(), energy=-1.0)
    atoms.numbers[0] = 8
    with pytest.raises(DataError, match="belong to other atoms"):
        find(atoms, "energy")


def test_shifting_and_folding_the_whole_is_no_change():
    atoms = Atoms("H2", [[3.9, 0, 0], [4.6, 0, 0]], cell=[4, 5, 6], pbc=True)
    in_calculator(atoms, energy=-1.0)
    atoms.wrap()
    assert atoms.positions[1, 0] == pytest.approx(0.6)
    assert find(atoms, "energy") == -1.0
    atoms.positions += 100.3
    atoms.pbc = False  # a molecule that a file calls periodic
    atoms.cell = None
    assert find(atoms, "energy") == -1.0


def test_missing_key_lists_what_is_there(h2):
    atoms = in_calculator(h2(REF_energy=1), energy=1.0)
    error = missing_key("REF_enrgy", "energy", "a", count_keys([atoms]))
    assert "info: REF_energy; calculator: energy" in str(error)
    assert "Did you mean 'REF_energy'?" in str(error)
    assert "no keys at all" in str(missing_key("e", "energy", "a", count_keys([h2()])))
    usual = missing_key("", "energy", "a", count_keys([h2(energy_xtb=1, name="x")]))
    assert str(usual).endswith("Did you mean 'energy_xtb'?")
