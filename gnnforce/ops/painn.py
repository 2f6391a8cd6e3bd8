r"""The parts of PaiNN that act on each atom by itself, as primitives.

Their rules work on cotangents with features first and outputs last
(:mod:`gnnforce.ops.rows`), a piece of the atoms at a time.
"""

# ruff: noqa: ANN401  (autograd.Function prescribes names and passes anything)

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnforce.ops.perceptron import (
    Activation,
    Layers,
    Run,
    pull_layers,
    pull_parameters,
    run_layers,
)
from gnnforce.ops.rows import (
    constant,
    contract,
    features_first,
    outputs_first,
    pieces,
    plus_product,
    pull_matrix,
)
from gnnforce.ops.rules import (
    Cotangents,
    Primitive,
    apply_rule,
    kept_or_made,
    remember_tensors,
    wanted,
)


def painn_context(s: Tensor, v: Tensor | None, layers: Layers) -> tuple[Tensor, ...]:
    r"""Prepare what an atom sends to its neighbors.

    .. math:: (x_i, c_i) = \mathrm{MLP}(s_i), \qquad y_i = c_i \odot v_i

    The scalars and vectors themselves are handed through, for the residual connection:
    what comes back along it is then added in the matrix product of the rule.

    Args:
        s: Scalars, shape ``(n_atoms, n_features)``.
        v: Vectors, shape ``(n_atoms, 3, n_features)``, or None before there are any.
        layers: The perceptron of two layers, from ``n_features`` to ``3 n_features``.

    Returns:
        ``s`` and ``x``, shape ``(n_atoms, 2 n_features)``; then ``v`` and ``y``, shaped as
        ``v``, if there is a ``v``.
    """
    result: tuple[Tensor, ...] = _Context.apply(
        [], layers.activation, s, v, *layers.flat()
    )
    return result


class _Context(Primitive):
    @staticmethod
    def forward(
        kept: list[Run],
        activation: Activation,
        s: Tensor,
        v: Tensor | None,
        *flat: Tensor | None,
    ) -> tuple[Tensor, ...]:
        run = run_layers(s, Layers.of(activation, flat))
        kept.append(run)
        width = 2 * s.shape[1]
        x = run.result[:, :width].contiguous()
        if v is None:
            return s.view_as(s), x
        return s.view_as(s), x, v.view_as(v), run.result[:, None, width:] * v

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.kept, ctx.activation = inputs[:2]
        ctx.save_for_backward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        s, v, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[4:])

        def rule(cotangents: Cotangents) -> Cotangents:
            run = kept_or_made(ctx.kept, lambda: run_layers(s, layers))
            first = [None if g is None else features_first(g) for g in cotangents]
            return _pull_context((run, v, layers), first, parameters)

        return None, None, *apply_rule(rule, grads)


def _pull_context(
    given: tuple[Run, Tensor | None, Layers],
    cotangents: list[Tensor | None],
    parameters: bool,
) -> Cotangents:
    run, v, layers = given
    n_features = run.inputs[0].shape[1]
    gs, gx, gv, gy = _present(cotangents, n_features)
    slopes = run.slopes(layers.activation)
    if v is None:
        gc = gx.new_zeros(n_features, *gx.shape[1:])
        new_gs, seen = pull_layers(layers, slopes, [gx, gc], gs)
        own = pull_parameters(layers, run, seen) if parameters else _nothing(layers)
        return outputs_first(new_gs), None, *own
    c, vectors = constant(run.result[:, 2 * n_features :])[:, :, None], constant(v)
    cuts = list(pieces(gx.shape[1], gy[:, :1].nbytes, whole=parameters))
    if len(cuts) == 1:
        new_gs, seen = pull_layers(layers, slopes, [gx, contract(gy, vectors)], gs)
        new_gv = gy * c if gv is None else torch.addcmul(gv, gy, c)
        own = pull_parameters(layers, run, seen) if parameters else _nothing(layers)
        return outputs_first(new_gs), outputs_first(new_gv), *own
    new_gs, new_gv = torch.empty_like(gx[:n_features]), torch.empty_like(gy)
    for cut in cuts:
        y = gy[:, cut]
        parts = [gx[:, cut], contract(y, vectors[:, cut])]
        start = None if gs is None else gs[:, cut]
        pull_layers(layers, [slope[:, cut] for slope in slopes], parts, start, new_gs[:, cut])
        torch.mul(y, c[:, cut], out=new_gv[:, cut])
        if gv is not None:
            new_gv[:, cut] += gv[:, cut]
    return outputs_first(new_gs), outputs_first(new_gv), *_nothing(layers)


def _present(
    cotangents: list[Tensor | None], n_features: int
) -> tuple[Tensor | None, Tensor, Tensor | None, Tensor]:
    """Name the cotangents; what the neighbors were sent is zero where it has none."""
    gs, gx, gv, gy = (*cotangents, None, None)[:4]
    some = next(g for g in cotangents if g is not None)
    n_atoms, n_outputs = some.shape[1], some.shape[-1]
    if gx is None:
        gx = some.new_zeros(2 * n_features, n_atoms, n_outputs)
    if gy is None:
        gy = some.new_zeros(n_features, n_atoms, 3, n_outputs)
    return gs, gx, gv, gy


def _nothing(layers: Layers) -> tuple[None, ...]:
    return (None,) * (2 * len(layers.weights))


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
        [], layers.activation, epsilon, s, v, mix, *layers.flat()
    )
    return result


class _Mixed(NamedTuple):
    """What the update computes on the way, one row an atom.

    Attributes:
        vectors: ``u`` and ``w``, shape ``(n_atoms, 3, 2 n_features)``.
        dot: Their products, ``(n_atoms, n_features)``.
        run: The perceptron.
    """

    vectors: Tensor
    dot: Tensor
    run: Run


def _mix(s: Tensor, v: Tensor, mix: Tensor, layers: Layers, epsilon: float) -> _Mixed:
    vectors = v @ mix.T
    u, w = vectors.split(s.shape[1], dim=-1)
    q = torch.sqrt((w * w).sum(dim=1) + epsilon)
    run = run_layers(torch.cat([s, q], dim=1), layers)
    return _Mixed(vectors, (u * w).sum(dim=1), run)


class _Update(Primitive):
    @staticmethod
    def forward(
        kept: list[_Mixed],
        activation: Activation,
        epsilon: float,
        s: Tensor,
        v: Tensor,
        mix: Tensor,
        *flat: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        m = _mix(s, v, mix, Layers.of(activation, flat), epsilon)
        kept.append(m)
        n_features = s.shape[1]
        a, b, c = m.run.result.split(n_features, dim=1)
        u = m.vectors[:, :, :n_features]
        return torch.addcmul(s + c, b, m.dot), torch.addcmul(v, a[:, None, :], u)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        remember_tensors(ctx, inputs)
        ctx.kept, ctx.activation, ctx.epsilon = inputs[:3]
        ctx.save_for_backward(*inputs[3:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(g is None for g in grads):
            return (None,) * len(ctx.needs_input_grad)
        s, v, mix, *flat = ctx.saved_tensors
        layers = Layers.of(ctx.activation, flat)
        parameters = any(wanted(ctx)[5:])

        def rule(cotangents: Cotangents) -> Cotangents:
            m = kept_or_made(ctx.kept, lambda: _mix(s, v, mix, layers, ctx.epsilon))
            gs, gv = (None if g is None else features_first(g) for g in cotangents)
            return _pull_update((m, v, mix, layers), gs, gv, parameters)

        return None, None, None, *apply_rule(rule, grads)


class _Factors(NamedTuple):
    """What cotangents are multiplied with in the update, features first."""

    u: Tensor
    w: Tensor
    unit: Tensor  # w / q
    dot: Tensor
    a: Tensor
    b: Tensor
    slope: Tensor

    def piece(self, atoms: slice) -> "_Factors":
        return _Factors(*(x[:, atoms] for x in self))


def _factors(m: _Mixed, activation: Activation) -> _Factors:
    u, w = constant(m.vectors).chunk(2)  # (n_features, n_atoms, 3, 1)
    rows = constant(torch.cat([m.dot, m.run.result, m.run.inputs[0]], dim=1))
    dot, a, b, _, _, q = rows.chunk(6)
    (slope,) = m.run.slopes(activation)
    return _Factors(u, w, w / q[:, :, None], dot, a, b, slope)


def _pull_update(
    given: tuple[_Mixed, Tensor, Tensor, Layers],
    gs: Tensor | None,
    gv: Tensor | None,
    parameters: bool,
) -> Cotangents:
    m, v, mix, layers = given
    if gs is None:
        assert gv is not None
        gs = torch.zeros_like(gv[:, :, 0])
    f = _factors(m, layers.activation)
    cuts = list(pieces(gs.shape[1], 3 * gs[:, :1].nbytes, whole=parameters))
    if len(cuts) == 1:
        (new_gs, new_gv), seen, mixed = _pull_piece((f, mix, layers), gs, gv)
        gmix, own = None, _nothing(layers)
        if parameters:
            gmix = torch.einsum("oicn,icf->nof", torch.cat(mixed), v)
            own = pull_parameters(layers, m.run, seen)
        return outputs_first(new_gs), outputs_first(new_gv), gmix, *own
    new_gs = torch.empty_like(gs)
    new_gv = gs.new_empty(gs.shape[0], gs.shape[1], 3, gs.shape[2])
    for cut in cuts:
        vectors = None if gv is None else gv[:, cut]
        out = new_gs[:, cut], new_gv[:, cut]
        _pull_piece((f.piece(cut), mix, layers), gs[:, cut], vectors, out)
    return outputs_first(new_gs), outputs_first(new_gv), None, *_nothing(layers)


def _pull_piece(
    given: tuple[_Factors, Tensor, Layers],
    gs: Tensor,
    gv: Tensor | None,
    out: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[tuple[Tensor, Tensor], list[Sequence[Tensor]], tuple[Tensor, Tensor]]:
    """Pull cotangents of some atoms back.

    Returns:
        Cotangents of ``s`` and ``v``; of the perceptron's layers; of ``u`` and ``w``.
    """
    f, mix, layers = given
    ga = torch.zeros_like(gs) if gv is None else contract(gv, f.u)
    both, seen = pull_layers(layers, [f.slope], [ga, gs * f.dot, gs])
    from_s, from_q = both.chunk(2)
    product = (gs * f.b)[:, :, None]
    gu = product * f.w
    if gv is not None:
        gu = plus_product(gu, gv, f.a[:, :, None])
    gw = plus_product(product * f.u, from_q[:, :, None], f.unit)
    new_gs = torch.add(gs, from_s, out=out[0])
    return (new_gs, pull_matrix(mix, [gu, gw], gv, out[1])), seen, (gu, gw)
