import pytest
import torch
from ase.data import chemical_symbols

from gnnforce.errors import UnknownElementError, UserError
from gnnforce.nn.embedding import SYMBOLS, ElementEmbedding, ElementTable, element_name


def test_symbols_are_those_of_the_periodic_table():
    assert chemical_symbols == SYMBOLS


def test_order_is_kept():
    table = ElementTable([8, 1, 118])
    assert table(torch.tensor([118, 1, 8, 8])).tolist() == [2, 1, 0, 0]
    assert len(table) == 3


@pytest.mark.parametrize(
    ("number", "name"), [(2, "He"), (0, "X"), (118, "Og"), (-3, "Z=-3")]
)
def test_unknown_elements_are_named_with_the_known(number, name):  # C14
    with pytest.raises(UnknownElementError, match=f"element {name}; it knows H, O"):
        ElementTable([1, 8])(torch.tensor([1, number, 8]))
    with pytest.raises(UnknownElementError, match=name):
        ElementTable([1, 8]).check(torch.tensor([number]))


def test_number_beyond_the_table():
    with pytest.raises(UnknownElementError, match="Z=300"):
        ElementTable([1])(torch.tensor([300]))
    assert element_name(300) == "Z=300"


@pytest.mark.parametrize("elements", [[], [1, 1], [0], [119], [-1], [1.5], ["H", "O"]])
def test_no_set_of_elements(elements):
    with pytest.raises(UserError, match="distinct atomic numbers"):
        ElementTable(elements)


def test_rows_of_the_embedding():
    embedding = ElementEmbedding([8, 1], 4)
    rows = embedding(torch.tensor([1, 8, 1]))
    assert torch.equal(rows, embedding.weight[[1, 0, 1]])
