import pytest
import torch

from gnnforce.derivatives.second import derivative_rows, product, recorded_gradient


def polynomial():
    x = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[2.0, 0.5]], dtype=torch.float64, requires_grad=True)
    value = (x**3).sum() * y.prod() + (x[0] * x[1] * y[0, 1]) ** 2
    return x, y, torch.stack([value, x.sum()])


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
def test_rows_equal_the_hessian_of_pytorch(rows):
    x, y, outputs = polynomial()
    gradient = recorded_gradient(outputs, [x, y], torch.tensor([1.0, 2.0]).double())
    matrix = derivative_rows(gradient, [x, y], rows)

    def function(flat):
        a, b = flat[:3], flat[3:].view(1, 2)
        return (a**3).sum() * b.prod() + (a[0] * a[1] * b[0, 1]) ** 2 + 2 * a.sum()

    at = torch.cat([x.detach(), y.detach().view(-1)])
    expected = torch.autograd.functional.hessian(function, at)
    torch.testing.assert_close(matrix, expected, rtol=1e-12, atol=1e-12)
    assert not matrix.requires_grad


def test_product_is_a_row_combination():
    x, y, outputs = polynomial()
    gradient = recorded_gradient(outputs, [x, y], torch.tensor([1.0, 0.0]).double())
    v = torch.linspace(-1, 1, 5, dtype=torch.float64)
    found = product(gradient, [x, y], v)
    matrix = derivative_rows(gradient, [x, y], 2)
    torch.testing.assert_close(found, matrix.mT @ v, rtol=1e-12, atol=1e-12)


def test_the_graph_is_freed_with_the_last_rows_unless_kept():
    x, y, outputs = polynomial()
    gradient = recorded_gradient(outputs, [x, y], torch.tensor([1.0, 0.0]).double())
    kept = derivative_rows(gradient, [x, y], 2, keep=True)
    assert torch.equal(kept, derivative_rows(gradient, [x, y], 2))
    with pytest.raises(RuntimeError, match="second time"):
        derivative_rows(gradient, [x, y], 2)


def test_a_weight_that_depends_on_the_outputs_is_differentiated_too():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    outputs = torch.stack([x[0] ** 2, x[0] * x[1]])
    weight = 2 * outputs  # of the squared length of the outputs
    matrix = derivative_rows(recorded_gradient(outputs, [x], weight), [x], 2)
    expected = torch.autograd.functional.hessian(
        lambda z: (z[0] ** 2) ** 2 + (z[0] * z[1]) ** 2, x.detach()
    )
    torch.testing.assert_close(matrix, expected)


def test_linear_outputs_have_no_second_derivative():
    x = torch.ones(3, requires_grad=True)
    gradient = recorded_gradient(2 * x, [x], torch.ones(3))
    assert torch.equal(derivative_rows(gradient.detach(), [x], 2), torch.zeros(3, 3))
    assert torch.equal(product(gradient.detach(), [x], torch.ones(3)), torch.zeros(3))
    empty = torch.zeros(0, requires_grad=True)
    none = recorded_gradient((empty**2).sum()[None], [empty], torch.ones(1))
    assert derivative_rows(none, [empty], 4).shape == (0, 0)
