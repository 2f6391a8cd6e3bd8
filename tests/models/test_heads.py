import pytest

from gnnforce.errors import UnknownHeadError
from gnnforce.models.heads import choose_head, default_head

from .fields import make_field


def test_the_first_head_answers_when_none_is_named():
    """C44: one rule, whatever the names."""
    model = make_field("SchNet")
    assert model.head_names == ["pbe", "hf", "cc"]
    assert default_head(model) == choose_head(model, None) == "pbe"
    assert choose_head(model, "cc") == "cc"


@pytest.mark.parametrize("name", ["PBE", "", "energy"])
def test_unknown_names_are_never_replaced(name):
    with pytest.raises(UnknownHeadError, match="the model has pbe, hf, cc"):
        choose_head(make_field("SchNet"), name)
