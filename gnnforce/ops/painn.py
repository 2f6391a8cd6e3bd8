r"""The parts of PaiNN that act on each atom by itself, as primitives.

Cotangents of all outputs are kept with features first and outputs last, ``(n_features,
n_atoms, 3, n_outputs)``, so each matrix product is one product with ``n_atoms x 3 x
n_outputs`` columns.
"""

# ruff: noqa: ANN401  (autograd.Function prescribes names and passes anything)

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnforce.ops.perceptron import (
    Activation,
    Layers,
    pull_layers,
    pull_matrix,
    run_layers,
)
from gnnforce.ops.rules import Cotangents, Primitive, apply_rule, remember_tensors, wanted


def painn_context(s: Tensor, v: Tensor | None, layers: Layers) -> tuple[Tensor, ...]:
    r"""Prepare what an atom sends to its neighbors.

    .. math:: (x_i, c_i) = \mathrm{MLP}(s_i), \qquad y_i = c_i \odot v_i

    Args:
        s: Scalars, shape ``(n_atoms, n_features)``.
        v: Vectors, shape ``(n_atoms, 3, n_features)``, or None before there are any.
        layers: The perceptron, from ``n_features`` to ``3 n_features``.

    Returns:
        ``x``, shape ``(n_atoms, 2 n_features)``, and ``y``, shaped as ``v``, if there is a
        ``v``.
    """
    result = _Context.apply(layers.activation, s, v, *layers.flat())
    return result if isinstance(result, tuple) else (result,)


class _Context(Primitive):
    @staticmethod
    def forward(
        activation: Activation, s: Tensor, v: Tensor | None, *flat: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        phi = run_layers(s, Layers.of(activation, flat))[0]
        width = 2 * s.shape[1]
        x = phi[:, :width].contiguous()
        return x if v is None else (x, phi[:, None, width:] * v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.activation = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        s, v, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[3:])

        def rule(cotangents: Cotangents) -> Cotangents:
            return _pull_context(s, v, layers, cotangents, parameters)

        return None, *apply_rule(rule, grads)


def _pull_context(
    s: Tensor,
    v: Tensor | None,
    layers: Layers,
    cotangents: Cotangents,
    parameters: bool,
) -> Cotangents:
    n_features = s.shape[1]
    gx = cotangents[0]
    gy = None if v is None else cotangents[1]
    some = gx if gx is not None else gy
    assert some is not None
    if gx is None:
        gx = some.new_zeros(*some.shape[:2], 2 * n_features)
    gv = None
    if v is not None and gy is not None:
        c = run_layers(s, layers)[0][:, 2 * n_features :]
        gy = features_first(gy)  # (n_features, n_atoms, 3, n_outputs)
        gc = (gy * constant(v)).sum(dim=2)
        gv = outputs_first(gy * constant(c)[:, :, None])
    else:
        gc = some.new_zeros(n_features, some.shape[1], some.shape[0])
    phi = torch.cat([features_first(gx), gc])  # (3 n_features, n_atoms, n_outputs)
    gs, own = pull_layers(s, layers, phi, parameters)
    return outputs_first(gs), gv, *own


def painn_update(
    s: Tensor, v: Tensor, mix: Tensor, layers: Layers, epsilon: float
) -> tuple[Tensor, Tensor]:
    r"""Let the scalars and vectors of an atom act on each other.

    .. math::
        (u, w) &= v M^T, \qquad q = \sqrt{\|w\|^2 + \epsilon}, \qquad
        (a, b, c) = \mathrm{MLP}(s, q) \\
        s' &= s + c + b \odot \langle u, w \rangle, \qquad v' = v + a \odot u

    Args:
        s: Scalars, shape ``(n_atoms, n_features)``.
        v: Vectors, shape ``(n_atoms, 3, n_features)``.
        mix: ``M``, shape ``(2 n_features, n_features)``.
        layers: The perceptron, from ``2 n_features`` to ``3 n_features``.
        epsilon: Keeps the slope of a vector's length finite at zero.

    Returns:
        New scalars and vectors.
    """
    result: tuple[Tensor, Tensor] = _Update.apply(
        layers.activation, epsilon, s, v, mix, *layers.flat()
    )
    return result


class _Mixed(NamedTuple):
    """What the update computes on the way, one row an atom."""

    u: Tensor
    w: Tensor
    q: Tensor
    both: Tensor
    a: Tensor
    b: Tensor
    c: Tensor


def _mixed(s: Tensor, v: Tensor, mix: Tensor, layers: Layers, epsilon: float) -> _Mixed:
    n_features = s.shape[1]
    u, w = (v @ mix.T).split(n_features, dim=-1)
    q = torch.sqrt((w * w).sum(dim=1) + epsilon)
    both = torch.cat([s, q], dim=1)
    a, b, c = run_layers(both, layers)[0].split(n_features, dim=1)
    return _Mixed(u, w, q, both, a, b, c)


class _Update(Primitive):
    @staticmethod
    def forward(
        activation: Activation,
        epsilon: float,
        s: Tensor,
        v: Tensor,
        mix: Tensor,
        *flat: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        m = _mixed(s, v, mix, Layers.of(activation, flat), epsilon)
        new_s = torch.addcmul(s + m.c, m.b, (m.u * m.w).sum(dim=1))
        return new_s, torch.addcmul(v, m.a[:, None, :], m.u)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.activation, ctx.epsilon = inputs[:2]
        ctx.save_for_backward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        s, v, mix, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[4:])

        def rule(cotangents: Cotangents) -> Cotangents:
            m = _mixed(s, v, mix, layers, ctx.epsilon)
            gs, gv = (None if g is None else features_first(g) for g in cotangents)
            return _pull_update((m, v, mix, layers), gs, gv, parameters)

        return None, None, *apply_rule(rule, grads)


def _pull_update(
    given: tuple[_Mixed, Tensor, Tensor, Layers],
    gs: Tensor | None,
    gv: Tensor | None,
    parameters: bool,
) -> Cotangents:
    """Pull ``(n_features, n_atoms, n_outputs)`` and ``(.., n_atoms, 3, n_outputs)`` back."""
    m, v, mix, layers = given
    u, w = constant(m.u), constant(m.w)  # (n_features, n_atoms, 3, 1)
    if gs is None:
        assert gv is not None
        gs = torch.zeros_like(gv[:, :, 0])
    ga = torch.zeros_like(gs) if gv is None else (gv * u).sum(dim=2)
    gb = gs * constant((m.u * m.w).sum(dim=1))
    gboth, own = pull_layers(m.both, layers, torch.cat([ga, gb, gs]), parameters)
    from_s, from_q = gboth.chunk(2)
    product = (gs * constant(m.b))[:, :, None]
    length = (from_q * constant(1 / m.q))[:, :, None]
    gu = product * w
    if gv is not None:
        gu = torch.addcmul(gu, gv, constant(m.a)[:, :, None])
    gw = torch.addcmul(product * u, length, w)
    both = torch.cat([gu, gw])
    new_gv = pull_matrix(mix, both)
    if gv is not None:
        new_gv = new_gv + gv
    gmix = torch.einsum("oicn,icf->nof", both, v) if parameters else None
    return outputs_first(gs + from_s), outputs_first(new_gv), gmix, *own


def features_first(g: Tensor) -> Tensor:
    """Bring cotangents to ``(n_features, n_atoms, [3,] n_outputs)``.

    Args:
        g: Shape ``(n_outputs, n_atoms, [3,] n_features)``.

    Returns:
        Contiguous; nothing is copied between primitives.
    """
    order = (2, 1, 0) if g.dim() == 3 else (3, 1, 2, 0)
    return g.permute(order).contiguous()


def outputs_first(g: Tensor) -> Tensor:
    """View the result of a rule with the outputs leading, as autograd has it."""
    return g.permute((2, 1, 0) if g.dim() == 3 else (3, 1, 2, 0))


def constant(x: Tensor) -> Tensor:
    """Bring what does not depend on the output to ``(n_features, n_atoms, [3,] 1)``."""
    order = (1, 0) if x.dim() == 2 else (2, 0, 1)
    return x.permute(order).contiguous()[..., None]
