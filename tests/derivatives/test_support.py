import pytest
import torch

from gnnforce.derivatives.api import gradients
from gnnforce.derivatives.forward import push_forward
from gnnforce.derivatives.support import explained
from gnnforce.errors import UserError


class Square(torch.autograd.Function):
    """As people write them: no ``vmap``, no ``jvp``."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004  (PyTorch's signature)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return Cube.apply(grad, *ctx.saved_tensors)


class Cube(Square):
    @staticmethod
    def forward(grad, x):
        return 2 * grad * x


def test_no_forward_rule():
    with pytest.raises(UserError) as error:
        push_forward(Square.apply, torch.ones(3), torch.eye(3))
    text = str(error.value)
    assert "strategy 'forward' cannot" in text
    assert "use strategy='loop'" in text
    assert "rule" in text
    assert "\n" not in text


def test_an_operation_of_pytorch_without_a_forward_rule():
    lengths = torch.tensor([1, 2])

    def function(x):
        return torch.segment_reduce(x, "sum", lengths=lengths)

    with pytest.raises(UserError, match="no forward-mode rule; use strategy='loop'"):
        push_forward(function, torch.ones(3), torch.eye(3))


def test_no_batching_rule():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UserError, match=r"'batched' cannot .* no batching rule"):
        gradients(Square.apply(x), x, "batched")
    torch.testing.assert_close(gradients(Square.apply(x), x, "loop"), 2 * torch.eye(3))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="size of tensor"), explained("forward"):
        torch.ones(2) + torch.ones(3)
