import pytest

from gnnforce.datasets.units import (
    energy_factor,
    is_energy_unit,
    is_length_unit,
    length_factor,
    pressure_factor,
)
from gnnforce.errors import DataError


@pytest.mark.parametrize(
    ("word", "factor"),
    [
        ("eV", 1.0),
        ("kcal/mol", 0.04336410),  # C28
        ("KCAL/MOL", 0.04336410),
        ("kJ/mol", 0.01036427),
        ("hartree", 27.211386),
        ("Ha", 27.211386),
        ("Ry", 13.605693),
        ("meV", 1e-3),
    ],
)
def test_energy_units(word, factor):
    assert energy_factor(word) == pytest.approx(factor, rel=2e-7)


def test_length_and_stress_units():
    assert length_factor("Bohr") == pytest.approx(0.529177211, rel=1e-8)
    assert length_factor("Å") == length_factor("Ang") == 1.0
    assert pressure_factor("kbar") == pytest.approx(1 / 1602.1766, rel=1e-6)
    assert pressure_factor("GPa") == pytest.approx(10 * pressure_factor("kbar"))


@pytest.mark.parametrize(
    ("factor", "word", "nearest"),
    [
        (energy_factor, "kcal", "kcal/mol"),
        (length_factor, "Angs", "Ang"),
        (pressure_factor, "GPascal", "GPa"),
    ],
)
def test_unknown_unit_names_the_nearest(factor, word, nearest):
    with pytest.raises(DataError, match="unknown unit") as caught:
        factor(word)
    assert f"Did you mean {nearest!r}?" in str(caught.value)


def test_what_is_a_unit():
    assert is_energy_unit("Hartree")
    assert not is_energy_unit("eV/atom")
    assert is_length_unit(" bohr ")
    assert not is_length_unit("mile")
