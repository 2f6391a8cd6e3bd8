import torch

from gnnforce.testing.agreement import differences, gradient_difference

INFINITE = float("inf")


def test_differences_against_numbers_by_hand():
    found = torch.tensor([[1.0, -3.5], [0.0, 2.0]])
    expected = torch.tensor([[1.0, -4.0], [0.25, 2.0]])
    assert differences(found, expected) == (0.5, 0.125)
    assert differences(expected, expected) == (0.0, 0.0)


def test_what_has_no_number_is_infinitely_far():
    one = torch.ones(2)
    for broken in (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, INFINITE])):
        assert differences(broken, one) == (INFINITE, INFINITE)
        assert differences(one, broken) == (INFINITE, INFINITE)
        assert gradient_difference({"w": broken}, {"w": one}) == INFINITE
    assert differences(one, torch.ones(3)) == (INFINITE, INFINITE)
    assert differences(one, torch.zeros(2)) == (1.0, INFINITE)
    assert differences(torch.zeros(0), torch.zeros(0)) == (0.0, 0.0)


def test_gradients_are_compared_tensor_by_tensor():
    expected = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.1])}
    assert gradient_difference(expected, expected) == 0.0
    found = expected | {"b": torch.tensor([0.2])}
    assert abs(gradient_difference(found, expected) - 1.0) < 1e-6  # not 0.1 / 5


def test_rounding_of_a_tensor_that_is_nothing_is_measured_by_the_others():
    expected = {"a": torch.tensor([1.0]), "b": torch.tensor([0.0])}
    found = expected | {"b": torch.tensor([1e-9])}
    assert abs(gradient_difference(found, expected) - 1e-6) < 1e-9


def test_missing_gradients_are_noticed():
    expected = {"a": torch.ones(1), "b": torch.ones(1)}
    assert gradient_difference({"a": torch.ones(1)}, expected) == INFINITE
    assert gradient_difference({}, {}) == 0.0
