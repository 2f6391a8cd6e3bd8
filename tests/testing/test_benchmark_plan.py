import pytest

from gnnforce.errors import UserError
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.peak_memory import available_mib


def test_one_output_and_the_loop_are_always_measured():
    plan = Plan(members=(16, 4, 4), strategies=("batched",))
    assert plan.members == (1, 4, 16)
    assert plan.strategies == ("loop", "batched")
    assert [(call.n_outputs, call.strategy) for call in plan.calls()][:3] == [
        (1, "loop"),
        (1, "batched"),
        (4, "loop"),
    ]
    assert not plan.calls()[0].training
    assert Plan(training=True).calls()[0].training


def test_the_memory_limit_is_half_of_what_is_free():
    assert 0 < Plan().max_mib < available_mib()
    assert Plan(max_mib=10.0).max_mib == 10.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"members": (0, 1)}, "members"),
        ({"repeats": 0}, "repeats"),
        ({"max_seconds": 0.0}, "max_seconds"),
        ({"max_seconds": float("nan")}, "max_seconds"),
        ({"max_mib": -1.0}, "max_mib"),
        ({"strategies": ("loup",)}, "Did you mean 'loop'"),
    ],
)
def test_numbers_out_of_range(wrong, message):
    with pytest.raises(UserError, match=message):
        Plan(**wrong)
