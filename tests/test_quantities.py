import pytest

from gnnforce.errors import UserError
from gnnforce.quantities import QUANTITIES, check_quantities


def test_table_describes_the_tensors():
    shapes = {name: (one.per, one.rank, one.unit) for name, one in QUANTITIES.items()}
    assert shapes == {
        "energy": ("graph", 0, "eV"),
        "energies": ("atom", 0, "eV"),
        "forces": ("atom", 1, "eV/Angstrom"),
        "virial": ("graph", 2, "eV"),
        "stress": ("graph", 2, "eV/Angstrom^3"),
    }
    assert all(name == one.name for name, one in QUANTITIES.items())
    assert {n for n, one in QUANTITIES.items() if one.derivative} == {
        "forces",
        "virial",
        "stress",
    }
    assert {n for n, one in QUANTITIES.items() if one.needs_cell} == {"virial", "stress"}


def test_names_keep_their_order_without_repeats():
    assert check_quantities(("stress", "energy", "stress")) == ("stress", "energy")
    assert check_quantities(name for name in ["forces"]) == ("forces",)
    assert check_quantities([]) == ()


@pytest.mark.parametrize("wanted", ["energy", None, 3])
def test_a_bare_word_is_not_a_list(wanted):
    with pytest.raises(UserError, match="must be a list of names"):
        check_quantities(wanted)


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"'force'; there are energy, .*mean 'forces'\?"):
        check_quantities(["energy", "force"])
