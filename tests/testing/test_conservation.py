import numpy as np
import pytest

from gnnforce.derivatives import strategies
from gnnforce.testing import conservation


@pytest.mark.parametrize(
    ("law", "fault", "word"),
    [
        (conservation.assert_forces_are_gradients, "detached", "forces and differences"),
        (conservation.assert_stress_is_gradient, "detached", "stress and differences"),
        (conservation.assert_no_net_force, "direction", "torques"),
        (conservation.assert_evaluation_leaves_no_trace, "remembers", "no_grad"),
        (conservation.assert_copies_agree, "remembers", "deepcopy"),
    ],
)
def test_law_holds_and_its_break_is_named(faulty, law, fault, word):
    law(faulty("none"))
    with pytest.raises(AssertionError, match=word):
        law(faulty(fault))


def test_wrong_strategy_is_named(faulty, monkeypatch):
    conservation.assert_strategies_agree(faulty("none"))
    right = strategies.ENGINES["batched"]
    wrong = lambda *arguments: right(*arguments) * (1 + 1e-9)  # noqa: E731
    monkeypatch.setitem(strategies.ENGINES, "batched", wrong)
    with pytest.raises(AssertionError, match="by batched"):
        conservation.assert_strategies_agree(faulty("none"))


def test_missing_refusals_are_named(faulty, monkeypatch):
    model = faulty("none")
    conservation.assert_molecules_have_no_stress(model)
    conservation.assert_unknown_elements_refused(model)
    answer = {"energy": np.zeros(2), "stress": np.zeros((2, 3, 3))}
    monkeypatch.setattr(conservation, "evaluate", lambda *_, **__: answer)
    with pytest.raises(AssertionError, match="stress of a molecule"):
        conservation.assert_molecules_have_no_stress(model)
    with pytest.raises(AssertionError, match="atomic number 0 was not refused"):
        conservation.assert_unknown_elements_refused(model)


def test_forgotten_parameter_is_named(faulty):
    conservation.assert_parameters_learn_from_forces(faulty("none", hidden=()))
    with pytest.raises(AssertionError, match=r"backbone\.widths"):
        conservation.assert_parameters_learn_from_forces(faulty("forgotten", hidden=()))
