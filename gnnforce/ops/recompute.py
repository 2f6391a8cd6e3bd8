"""Layers that keep their inputs only, and compute everything else again when it is needed.

``torch.utils.checkpoint`` does not help where a loss depends on forces: it frees what the
forward pass of a layer saved, but the backward pass that gives the forces (with
``create_graph``) computes it again and its own graph keeps it, once an output. Here the
backward pass of a layer is recomputed in the same way as its forward pass, to any order.
"""

# ruff: noqa: ANN401  (autograd.Function prescribes names and passes anything)

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gnnforce.errors import UserError
from gnnforce.ops.rules import wanted

Several = tuple[Tensor, ...]
Layer = Callable[..., Several]

_local = threading.local()


@contextmanager
def recomputing(active: bool = True) -> Iterator[None]:
    """Let backbones recompute their layers, in the calling thread.

    Args:
        active: False leaves everything as it is.

    Example:
        >>> with recomputing():
        ...     is_recomputing()
        True
        >>> is_recomputing()
        False
    """
    before = is_recomputing()
    _local.active = before or active
    try:
        yield
    finally:
        _local.active = before


def is_recomputing() -> bool:
    """Tell whether the calling thread is inside :func:`recomputing`."""
    return bool(getattr(_local, "active", False))


def recomputed(
    layer: Layer, *inputs: Tensor | None, parameters: Sequence[Tensor] = ()
) -> Several:
    r"""Call a layer, keeping its inputs and nothing else for derivatives of any order.

    A backward pass computes ``layer(*inputs)`` again. When that pass is differentiated
    itself, its step through this layer, :math:`g \mapsto g\,\partial y / \partial x`, is
    a layer of the same kind: of ``inputs`` and ``g``, which are all that is kept. Values
    and derivatives are those of ``layer(*inputs)``; each order of derivatives costs one
    more evaluation.

    Args:
        layer: Gives a tuple of tensors, the same ones for the same inputs, and changes
            nothing else.
        inputs: Tensors, or None.
        parameters: All other tensors that require a gradient and that the layer uses.

    Returns:
        What the layer returns.

    Raises:
        UserError: Under a transform of ``torch.func``, or when gradients come from one.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (y,) = recomputed(lambda x: (x**3,), x)
        >>> (slope,) = torch.autograd.grad(y, x, create_graph=True)
        >>> torch.autograd.grad(slope, x)
        (tensor(18.),)
    """
    _refuse_transforms()
    apply: Any = _Recomputed.apply
    result: Several = apply(layer, len(inputs), *inputs, *parameters)
    return result


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layer: Layer, n_inputs: int, *tensors: Tensor | None
    ) -> Several:
        ctx.layer, ctx.n_inputs = layer, n_inputs
        ctx.is_tensor = tuple(isinstance(x, Tensor) for x in (layer, n_inputs, *tensors))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return layer(*tensors[:n_inputs])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        _refuse_transforms()
        given = [n for n, g in enumerate(cotangents) if g is not None]
        asked = [n for n, needed in enumerate(wanted(ctx)[2:]) if needed]
        saved, n_inputs = ctx.saved_tensors, ctx.n_inputs
        result: list[Tensor | None] = [None] * (2 + len(saved))
        if given and asked:
            step = _step(ctx.layer, saved[n_inputs:], given, asked)
            inputs = (*saved[:n_inputs], *(cotangents[n] for n in given))
            if torch.is_grad_enabled():
                found = recomputed(step, *inputs, parameters=saved[n_inputs:])
            else:
                found = step(*inputs)
            for n, gradient in zip(asked, found, strict=True):
                result[2 + n] = gradient
        return tuple(result)


def _step(
    layer: Layer, parameters: Sequence[Tensor], given: list[int], asked: list[int]
) -> Layer:
    """Return the backward pass through a layer as a function of inputs and cotangents.

    Args:
        layer: The layer.
        parameters: Tensors that it uses besides its inputs.
        given: Numbers of the results that have a cotangent.
        asked: Numbers of the inputs, and after them of the parameters, whose gradients
            are returned.
    """

    def step(*arguments: Tensor | None) -> Several:
        create_graph = torch.is_grad_enabled()
        n_inputs = len(arguments) - len(given)
        inputs: list[Any] = list(arguments[:n_inputs])
        for n in asked:
            x = inputs[n] if n < n_inputs else None
            if x is not None and not (create_graph and x.requires_grad):
                inputs[n] = x.detach().requires_grad_()
        with torch.enable_grad():
            results = layer(*inputs)
        return torch.autograd.grad(  # noqa: TID251  (a backward rule)
            [results[n] for n in given],
            [inputs[n] if n < n_inputs else parameters[n - n_inputs] for n in asked],
            arguments[n_inputs:],
            create_graph=create_graph,
            materialize_grads=True,
        )

    return step


def _refuse_transforms() -> None:
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001  (no public form)
        raise UserError(
            "activation checkpointing does not work with torch.func transforms: use "
            "strategy='loop', or switch it off (model.backbone.checkpointing = False)"
        )
