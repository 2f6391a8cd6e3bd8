import pytest
import torch

from gnnforce.errors import DataError
from gnnforce.training.losses import (
    ErrorFunction,
    energy_loss,
    label_sums,
    loss_coefficients,
    same_shape,
    weighted_loss,
)

FUNCTIONS = [ErrorFunction("mse"), ErrorFunction("huber", 0.5)]
VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_equal_tensors_have_no_loss_in_any_shape(function, shape):
    """Case C35: a broadcast of (4,) with (4, 1) would give 2.5."""
    values = VALUES[:, None].expand(4, 3)[:, : shape[-1]] if len(shape) > 1 else VALUES
    assert values.shape == shape
    assert weighted_loss(values, values.clone(), torch.ones(shape), function) == 0


@pytest.mark.parametrize("function", FUNCTIONS)
def test_shapes_that_differ_raise(function):
    """Case C35."""
    column = VALUES[:, None]
    with pytest.raises(ValueError, match=r"predicted \(4, 1\), reference \(4,\)"):
        weighted_loss(column, VALUES, torch.ones(4), function)
    with pytest.raises(ValueError, match="coefficients"):
        weighted_loss(VALUES, VALUES, torch.ones(4, 1), function)
    with pytest.raises(ValueError, match="n_graphs"):
        energy_loss(VALUES[None], VALUES[None], torch.ones(1, 4), torch.ones(1), function)
    with pytest.raises(ValueError, match="one"):
        same_shape(one=VALUES, other=column)


def test_energies_are_divided_by_the_atoms_of_their_own_graph():
    """Case C35: sizes 1, 2, 3, 4."""
    sizes = torch.tensor([1, 2, 3, 4])
    predicted = VALUES[None].clone().requires_grad_()
    ones = torch.ones(1, 4, dtype=torch.float64)
    loss = energy_loss(predicted, torch.zeros_like(ones), ones, sizes, ErrorFunction())
    assert loss.item() == pytest.approx(4.0)  # every energy per atom is 1
    loss.backward()
    assert torch.allclose(predicted.grad[0], 2 / sizes.double())


def test_huber_is_quadratic_then_linear_and_flat_at_zero():
    error = torch.tensor([-3.0, -0.5, 0.0, 0.5, 1e30], dtype=torch.float64)
    error.requires_grad_()
    values = ErrorFunction("huber", 0.5)(error)
    assert values.tolist() == pytest.approx([2.75, 0.25, 0.0, 0.25, 1e30])
    values.sum().backward()
    assert error.grad.tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]


def test_what_is_masked_does_not_matter_even_when_it_is_infinite():
    predicted = torch.tensor([1.0, float("inf"), 2.0], requires_grad=True)
    reference = torch.tensor([0.0, 5.0, float("nan")])
    loss = weighted_loss(
        predicted, reference, torch.tensor([1.0, 0.0, 0.0]), ErrorFunction()
    )
    assert loss == 1
    loss.backward()
    assert predicted.grad.tolist() == [2.0, 0.0, 0.0]


def gradients_of(weights, function, frames=(0, 1)):
    """Gradient of the energy loss of two frames with labels 0 and 1, per frame weight."""
    frames = list(frames)
    predicted = torch.tensor([[0.3, 0.4]], dtype=torch.float64)[
        :, frames
    ].requires_grad_()
    labels = torch.tensor([[0.0, 1.0]], dtype=torch.float64)[:, frames]
    weight = torch.tensor(weights, dtype=torch.float64)
    counts = torch.ones(1, len(frames), dtype=torch.float64)
    share = torch.ones(1, len(frames), dtype=torch.float64)
    coefficients = loss_coefficients(
        counts, label_sums(counts, weight), weight, share, torch.tensor([0])
    )
    sizes = torch.full((len(frames),), 2)
    energy_loss(predicted, labels, coefficients, sizes, function).backward()
    return predicted.grad[0]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_of_frames(function):
    """Case C36: the loss is a weighted mean."""
    alone = gradients_of([1.0], function, frames=[0])
    one_sided = gradients_of([1.0, 0.0], function)
    assert one_sided[0] == alone[0]
    assert one_sided[1] == 0
    both = gradients_of([1.0, 1.0], function)
    assert torch.equal(gradients_of([2.0, 2.0], function), both)
    assert both[0] == alone[0] / 2
    assert torch.equal(gradients_of([0.0, 0.0], function), torch.zeros(2).double())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_negative_weights_are_refused(function):
    """Case C36."""
    with pytest.raises(DataError, match="negative, but one is -1"):
        gradients_of([1.0, -1.0], function)


def test_coefficients_count_labels_and_members():
    counts = torch.tensor([[6.0, 3.0], [0.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64)
    rows = torch.tensor([0, 0, 1, 2])
    share = torch.tensor([[0.5, 1.0], [0.0, 0.5], [1.0, 1.0], [1.0, 1.0]]).double()
    found = loss_coefficients(counts, label_sums(counts, weight), weight, share, rows)
    expected = torch.tensor([[0.5 / 12, 2 / 12], [0, 1 / 12], [0, 0], [0, 2 / 18]])
    assert torch.allclose(found, expected.double())
