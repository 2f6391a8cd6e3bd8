import pytest

from gnnforce.errors import UnknownHeadError, UserError
from gnnforce.readouts.head import Head, OutputTable

HEADS = (Head("pbe"), Head("ccsd", members=3), Head("x", kind="pooled", hidden=(8, 4)))


def test_table_of_outputs():
    table = OutputTable(HEADS)
    assert table.n_outputs == 5
    assert table.head_of == ("pbe", "ccsd", "ccsd", "ccsd", "x")
    assert table.member_of == (0, 0, 1, 2, 0)
    assert [table.slice(name) for name in table.names] == [
        slice(0, 1),
        slice(1, 4),
        slice(4, 5),
    ]
    assert table.head("x") is HEADS[2]


def test_selection_keeps_the_order_of_the_model():
    assert OutputTable(HEADS).select(["x", "pbe", "x"]).names == ("pbe", "x")


@pytest.mark.parametrize("ask", ["head", "slice", "check"])
def test_unknown_head_lists_them(ask):  # C44
    with pytest.raises(UnknownHeadError, match=r"no head 'PBE'.*pbe, ccsd, x.*'pbe'"):
        getattr(OutputTable(HEADS), ask)("PBE")
    with pytest.raises(UnknownHeadError, match="no head 'mp2'"):
        OutputTable(HEADS).select(["pbe", "mp2"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "e", "members": 0}, "at least one member"),
        ({"name": "e", "members": 2.5}, "whole number"),
        ({"name": "e", "members": True}, "whole number"),
        ({"name": "e", "kind": "node_summ"}, "Did you mean 'node_sum'"),
        ({"name": "e", "hidden": (0,)}, "hidden widths"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        Head(**arguments)


@pytest.mark.parametrize("heads", [(), (Head("a"), Head("a"))])
def test_no_table(heads):
    with pytest.raises(UserError, match="head"):
        OutputTable(heads)


def test_arguments_rebuild_it():
    assert [Head(**head.arguments()) for head in HEADS] == list(HEADS)
