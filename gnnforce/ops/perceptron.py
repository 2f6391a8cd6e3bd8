"""A perceptron of one or two layers as one primitive.

Acting on each atom by itself, it sees the cotangents of all outputs as more columns of one
matrix product a layer: with features first and outputs last, nothing is copied.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from gnnforce.ops.rows import (
    constant,
    features_first,
    outputs_first,
    pull_matrix,
    times,
)
from gnnforce.ops.rules import (
    Cotangents,
    Primitive,
    apply_rule,
    kept_or_made,
    remember_tensors,
    wanted,
)

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
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    result: Tensor = _Perceptron.apply([], layers.activation, rows, *layers.flat())
    return result.unflatten(0, x.shape[:-1]) if x.dim() != 2 else result


class Run(NamedTuple):
    """What layers compute on the way.

    Attributes:
        result: Shape ``(n_rows, n_out)``.
        inputs: Of every layer, ``(n_rows, n_in)``.
        arguments: What every activation is applied to.
    """

    result: Tensor
    inputs: tuple[Tensor, ...]
    arguments: tuple[Tensor, ...]

    def slopes(self, activation: Activation) -> tuple[Tensor, ...]:
        """Return the slopes of activations with features first, ``(f, n_rows, 1)``."""
        return tuple(constant(activation.slope(z)) for z in self.arguments)


def run_layers(x: Tensor, layers: Layers) -> Run:
    """Evaluate layers with PyTorch's own operations."""
    inputs: list[Tensor] = []
    arguments: list[Tensor] = []
    y = x
    for weight, bias in zip(layers.weights, layers.biases, strict=True):
        if inputs:
            arguments.append(y)
            y = layers.activation.value(y)
        inputs.append(y)
        y = linear(y, weight, bias)
    return Run(y, tuple(inputs), tuple(arguments))


def pull_layers(
    layers: Layers,
    slopes: Sequence[Tensor],
    parts: Sequence[Tensor],
    start: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, list[Sequence[Tensor]]]:
    """Pull cotangents of all outputs back through layers.

    Args:
        layers: The layers.
        slopes: Of the activations, features first.
        parts: Cotangents, ``(n_p, n_rows, n_outputs)``, the ``n_p`` adding up to ``n_out``.
        start: What the cotangents of the input are added to, or None.
        out: Where they are written; see :func:`~gnnforce.ops.rows.pull_matrix`.

    Returns:
        Cotangents of the input, and of what every layer returns, in parts.
    """
    seen: list[Sequence[Tensor]] = [parts]
    for number in reversed(range(1, len(layers.weights))):
        g = times(pull_matrix(layers.weights[number], seen[0]), slopes[number - 1])
        seen.insert(0, [g])
    return pull_matrix(layers.weights[0], seen[0], start, out), seen


def pull_parameters(
    layers: Layers, run: Run, seen: list[Sequence[Tensor]]
) -> tuple[Tensor | None, ...]:
    """Return cotangents of weights, then biases, outputs first.

    Args:
        layers: The layers.
        run: What they computed.
        seen: What :func:`pull_layers` returned second.
    """
    joined = [torch.cat(list(parts)) for parts in seen]
    weights = [
        torch.einsum("orn,ri->noi", g, x) for g, x in zip(joined, run.inputs, strict=True)
    ]
    biases = [
        None if bias is None else g.sum(dim=1).T
        for g, bias in zip(joined, layers.biases, strict=True)
    ]
    return (*weights, *biases)


class _Perceptron(Primitive):
    @staticmethod
    def forward(
        kept: list[Run], activation: Activation, x: Tensor, *flat: Tensor | None
    ) -> Tensor:
        run = run_layers(x, Layers.of(activation, flat))
        kept.append(run)
        return run.result.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.kept, ctx.activation = inputs[:2]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[3:])

        def rule(cotangents: Cotangents) -> Cotangents:
            run = kept_or_made(ctx.kept, lambda: run_layers(x, layers))
            (g,) = cotangents
            assert g is not None
            slopes = run.slopes(layers.activation)
            pulled, seen = pull_layers(layers, slopes, [features_first(g)])
            own = (
                pull_parameters(layers, run, seen) if parameters else (None,) * len(flat)
            )
            return outputs_first(pulled), *own

        return None, None, *apply_rule(rule, (grad,))
