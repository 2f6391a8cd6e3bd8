import pytest

from gnnforce import errors
from gnnforce.errors import UserError, did_you_mean


def test_every_error_is_one_a_user_can_mend():
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    found = [one for one in found if issubclass(one, BaseException)]
    assert len(found) >= 9
    assert all(issubclass(one, UserError) for one in found)
    assert all(one.__doc__ for one in found)


@pytest.mark.parametrize(
    ("word", "options", "answer"),
    [
        ("learning_rat", ["learning_rate", "epochs"], " Did you mean 'learning_rate'?"),
        ("PBE", ["pbe", "hf"], " Did you mean 'pbe'?"),
        ("painn", ["PaiNN", "SchNet"], " Did you mean 'PaiNN'?"),
        ("xyz", ["energy"], ""),
        ("energy", [], ""),
        (7, [1, "seven"], ""),
    ],
)
def test_nearest_name(word, options, answer):
    assert did_you_mean(word, options) == answer
