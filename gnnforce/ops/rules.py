"""Backward rules that take the cotangents of many outputs at once.

A primitive is a ``torch.autograd.Function`` whose backward pass is a *rule*: a plain
function of cotangents with the outputs as their leading axis. Under
``torch.func.vmap`` the cotangents of all outputs arrive as one tensor, and the
rule runs once on it; otherwise it runs on one.

An ``autograd.Function`` called in the backward pass, with a ``vmap`` method, does the same
at five times the cost: 130 instead of 25 microseconds a primitive, which is what a whole
layer of a small molecule takes. Here the batched tensor is opened, the rule
runs one level further out, and its results are closed again, which is all that the method
would do.
"""

# ruff: noqa: ANN401, SLF001  (autograd passes anything; batched tensors have no public way in)

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

Cotangents = tuple[Tensor | None, ...]
Kept = TypeVar("Kept")
Rule = Callable[[Cotangents], Cotangents]


class Primitive(torch.autograd.Function):
    """An ``autograd.Function`` that is cheap to call.

    ``Function.apply`` inspects the Python signature at every call, which costs more
    than the work itself for a small molecule; outside of ``torch.func`` transforms the C++
    entry beneath it does the same.
    """

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the forward method and record the backward rule."""
        if torch._C._are_functorch_transforms_active():
            return super().apply(*args)  # type: ignore[no-untyped-call]
        return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


def remember_tensors(ctx: Any, inputs: tuple[Any, ...]) -> None:
    """Note which inputs are tensors, for :func:`wanted`; call it in ``setup_context``."""
    ctx.is_tensor = tuple(isinstance(x, Tensor) for x in inputs)


def wanted(ctx: Any) -> tuple[bool, ...]:
    """Tell which inputs of a primitive the running backward pass asks for.

    ``ctx.needs_input_grad`` is true for every input that requires a gradient, such as a
    parameter, even when only gradients of edge vectors are computed.

    Args:
        ctx: The context of the primitive's ``backward``.

    Returns:
        One truth value an input.
    """
    nodes = iter(ctx.next_functions)  # of the tensors among the inputs
    visited = [is_tensor and _is_visited(next(nodes)[0]) for is_tensor in ctx.is_tensor]
    return tuple(
        bool(needed) and there
        for needed, there in zip(ctx.needs_input_grad, visited, strict=True)
    )


def _is_visited(node: Any) -> bool:
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf that autograd.grad was asked for
        return True


def is_batched(cotangents: Cotangents) -> bool:
    """Tell whether the cotangents of many outputs arrive together."""
    return any(g is not None and _functorch.is_batchedtensor(g) for g in cotangents)


def apply_rule(rule: Rule, cotangents: Cotangents) -> Cotangents:
    """Run a rule on one cotangent or on all that ``torch.func.vmap`` brings.

    Args:
        rule: Maps cotangents of the results to cotangents of the inputs, both with the
            outputs as leading axis, or None where there is nothing.
        cotangents: As autograd hands them over.

    Returns:
        As autograd wants them back.

    Raises:
        NotImplementedError: For cotangents batched outside of another transform.

    Example:
        >>> def double(cotangents):
        ...     (g,) = cotangents
        ...     return (2 * g,)
        >>> apply_rule(double, (torch.ones(3),))
        (tensor([2., 2., 2.]),)
    """
    if not is_batched(cotangents):
        single = tuple(None if g is None else g[None] for g in cotangents)
        return tuple(None if x is None else x[0] for x in rule(single))
    level = _functorch.maybe_current_level() or 0
    opened = [_opened(g, level) for g in cotangents]
    with temporarily_pop_interpreter_stack():
        size = next(g.shape[d] for g, d in opened if g is not None and d is not None)
        rows = tuple(_leading(g, dim, size) for g, dim in opened)
        results = rule(rows)
    return tuple(
        None if x is None else _functorch._add_batch_dim(x, 0, level) for x in results
    )


def _opened(g: Tensor | None, level: int | None) -> tuple[Tensor | None, int | None]:
    """Return the tensor inside a batched tensor, and its batched axis."""
    if g is None or not _functorch.is_batchedtensor(g):
        return g, None
    if _functorch.maybe_get_level(g) != level:
        raise NotImplementedError(
            "cotangents of a primitive may be batched by the innermost transform only"
        )
    return _functorch.get_unwrapped(g), _functorch.maybe_get_bdim(g)


def _leading(g: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    if g is None:
        return None
    return g.expand(size, *g.shape) if dim is None else g.movedim(dim, 0)


def kept_or_made(kept: list[Kept], make: Callable[[], Kept]) -> Kept:
    """Return what the forward pass computed, or compute it again to be differentiated.

    The forward pass of an ``autograd.Function`` is not recorded: what it keeps for a rule
    would be a constant in the derivative of the rule. What is kept must not be a result of
    the primitive, but ``result.detach()`` may: a node that held one of its own results,
    which holds the node, would never be freed.
    """
    return make() if torch.is_grad_enabled() or not kept else kept[0]
