import numpy as np
import pytest
from ase import Atoms

from gnnforce.datasets.elements import atomic_number, check_elements, symbol
from gnnforce.errors import ConfigError, UnknownElementError


@pytest.mark.parametrize("word", ["O", 8, "8", np.int64(8), " O "])
def test_spellings(word):
    assert atomic_number(word) == 8


@pytest.mark.parametrize("word", ["o", "X", 0, "0", 119, -1, 1.5, "Ox", True, None])
def test_what_is_no_element(word):
    with pytest.raises(ConfigError, match="is no element"):
        atomic_number(word)


@pytest.mark.parametrize(
    ("atoms", "name"),
    [
        (Atoms("He2", [[0, 0, 0], [0, 0, 3]]), "He"),
        (Atoms("OH2X", np.zeros((4, 3))), "X"),
        (Atoms([118], [[0, 0, 0]]), "Og"),
        (Atoms("SO", [[0, 0, 0], [0, 0, 1]]), "S"),
    ],
)
def test_elements_that_a_model_does_not_know(atoms, name):  # C14
    water = Atoms("OH2", np.zeros((3, 3)))
    check_elements([water], [1, 8])
    with pytest.raises(UnknownElementError, match=f"frame 1 holds {name},.*knows H, O$"):
        check_elements([water, atoms], [8, 1])
    check_elements([water], [1, 8])


def test_symbols_end_somewhere():
    assert symbol(0) == "X"
    assert symbol(118) == "Og"
    assert symbol(119) == "Z=119"
