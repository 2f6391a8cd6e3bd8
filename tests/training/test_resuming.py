import pytest

from gnnforce.errors import ConfigError, DataError
from gnnforce.training.resuming import check_same_data, check_same_run

from .helpers import settings


def plain(**sections):
    return settings(**sections).model_dump(mode="json")


def test_how_long_and_where_may_change():
    now = plain(training={"minutes": 3, "threads": 2}, top={"output": "elsewhere"})
    check_same_run(plain(), now)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"training": {"learning_rate": 0.1}}, r"training\.learning_rate was 0\.005"),
        ({"model": {"n_features": 4}}, r"model\.n_features was 8 and is now 4"),
        ({"top": {"seed": 7}}, "seed was 0 and is now 7"),
        ({"data": {"valid": 0.2}}, r"data\.valid was 0\.1 and is now 0\.2"),
    ],
)
def test_what_makes_another_run_is_refused(sections, key):
    with pytest.raises(ConfigError, match=key):
        check_same_run(plain(), plain(**sections))


def test_other_structures_and_labels_are_refused():
    facts = {"hash_train": "a", "hash_valid": "b", "hash_test": "c"}
    facts |= {"hash_train_labels": "d", "hash_valid_labels": "e"}
    check_same_data(facts, facts | {"hash_test": None})
    for name in ("train", "valid"):
        with pytest.raises(DataError, match=f"the {name} frames"):
            check_same_data(facts, facts | {f"hash_{name}": "x"})
        with pytest.raises(DataError, match=f"the {name} labels"):
            check_same_data(facts, facts | {f"hash_{name}_labels": "x"})
