"""A perceptron of one or two layers as one primitive.

Acting on each atom by itself, it sees the cotangents of all outputs as more columns of one
matrix product a layer: with features first and outputs last, nothing is copied.
"""

# ruff: noqa: ANN401  (autograd.Function prescribes names and passes anything)

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from gnnforce.ops.rules import Cotangents, Primitive, apply_rule, remember_tensors, wanted

Scalar = Callable[[Tensor], Tensor]


class Activation(NamedTuple):
    """A function of one number, and its slope."""

    value: Scalar
    slope: Scalar


class Layers(NamedTuple):
    """Weights and biases from input to output, an activation between layers.

    Attributes:
        activation: The function between layers.
        weights: Shapes ``(n_out, n_in)``.
        biases: Shapes ``(n_out,)``, or None.
    """

    activation: Activation
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]

    def flat(self) -> tuple[Tensor | None, ...]:
        """Return weights, then biases, as a primitive takes them."""
        return (*self.weights, *self.biases)

    @classmethod
    def of(cls, activation: Activation, flat: Sequence[Tensor | None]) -> "Layers":
        """Rebuild from :meth:`flat`."""
        half = len(flat) // 2
        weights = tuple(w for w in flat[:half] if w is not None)
        return cls(activation, weights, tuple(flat[half:]))


def perceptron(x: Tensor, layers: Layers) -> Tensor:
    r"""Evaluate layers on every row.

    .. math:: y = W_L\,a(\ldots a(W_1 x + b_1) \ldots) + b_L

    Args:
        x: Shape ``(..., n_in)``.
        layers: Weights, biases and activation.

    Returns:
        Shape ``(..., n_out)``.

    Example:
        >>> layers = Layers(Activation(torch.tanh, torch.cos), (torch.ones(2, 3),), (None,))
        >>> perceptron(torch.ones(4, 3), layers).shape
        torch.Size([4, 2])
    """
    result: Tensor = _Perceptron.apply(layers.activation, x, *layers.flat())
    return result


def run_layers(x: Tensor, layers: Layers) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Evaluate layers with PyTorch's own operations.

    Returns:
        The result, the input of every layer, and what every activation is applied to.
    """
    inputs, arguments = [], []
    y = x
    for number, (weight, bias) in enumerate(
        zip(layers.weights, layers.biases, strict=True)
    ):
        if number:
            arguments.append(y)
            y = layers.activation.value(y)
        inputs.append(y)
        y = linear(y, weight, bias)
    return y, inputs, arguments


def pull_layers(
    x: Tensor, layers: Layers, g: Tensor, parameters: bool
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Pull cotangents of all outputs back through layers.

    Args:
        x: Input rows, shape ``(n_rows, n_in)``.
        layers: The layers.
        g: Cotangents, shape ``(n_out, n_rows, n_outputs)``.
        parameters: Whether those of the parameters are wanted.

    Returns:
        Of ``x``, shape ``(n_in, n_rows, n_outputs)``; of weights, then biases, with the
        outputs leading, or None.
    """
    _, inputs, arguments = run_layers(x, layers)
    weights: list[Tensor | None] = []
    biases: list[Tensor | None] = []
    for number in reversed(range(len(layers.weights))):
        if parameters:
            weights.insert(0, torch.einsum("orn,ri->noi", g, inputs[number]))
            no_bias = layers.biases[number] is None
            biases.insert(0, None if no_bias else g.sum(dim=1).T)
        g = pull_matrix(layers.weights[number], g)
        if number:
            slope = layers.activation.slope(arguments[number - 1])
            g = g * slope.T[:, :, None]
    nothing: tuple[Tensor | None, ...] = (None,) * (2 * len(layers.weights))
    return g, (*weights, *biases) if parameters else nothing


def pull_matrix(weight: Tensor, g: Tensor) -> Tensor:
    """Multiply with the transpose of ``weight``: ``(n_out, ...)`` to ``(n_in, ...)``."""
    return (weight.T @ g.reshape(g.shape[0], -1)).view(-1, *g.shape[1:])


class _Perceptron(Primitive):
    @staticmethod
    def forward(activation: Activation, x: Tensor, *flat: Tensor | None) -> Tensor:
        return run_layers(x, Layers.of(activation, flat))[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.activation = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[2:])

        def rule(cotangents: Cotangents) -> Cotangents:
            (g,) = cotangents
            assert g is not None
            rows = g.flatten(1, -2).permute(2, 1, 0).contiguous()
            pulled, own = pull_layers(x.flatten(0, -2), layers, rows, parameters)
            return pulled.permute(2, 1, 0).unflatten(1, x.shape[:-1]), *own

        return None, *apply_rule(rule, (grad,))
