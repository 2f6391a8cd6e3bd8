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
    join,
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

    Args:
        s: Scalars, shape ``(n_atoms, n_features)``.
        v: Vectors, shape ``(n_atoms, 3, n_features)``, or None before there are any.
        layers: The perceptron of two layers, from ``n_features`` to ``3 n_features``.

    Returns:
        ``x``, shape ``(n_atoms, 2 n_features)``, and ``y``, shaped as ``v``, if there is a
        ``v``.
    """
    result = _Context.apply([], layers.activation, s, v, *layers.flat())
    return result if isinstance(result, tuple) else (result,)


class _Context(Primitive):
    @staticmethod
    def forward(
        kept: list[Run],
        activation: Activation,
        s: Tensor,
        v: Tensor | None,
        *flat: Tensor | None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        run = run_layers(s, Layers.of(activation, flat))
        kept.append(run)
        width = 2 * s.shape[1]
        x = run.result[:, :width].contiguous()
        return x if v is None else (x, run.result[:, None, width:] * v)

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
            gx, gy = cotangents if v is not None else (cotangents[0], None)
            return _pull_context((run, v, layers), gx, gy, parameters)

        return None, None, *apply_rule(rule, grads)


def _pull_context(
    given: tuple[Run, Tensor | None, Layers],
    gx: Tensor | None,
    gy: Tensor | None,
    parameters: bool,
) -> Cotangents:
    run, v, layers = given
    n_features = run.inputs[0].shape[1]
    gx, gy = _both(gx, gy, n_features)
    n_atoms = gx.shape[1]
    carried = v is not None
    if v is None:
        v = gx.new_zeros(n_atoms, 3, n_features)
    c, vectors = constant(run.result[:, 2 * n_features :]), constant(v)
    slopes = run.slopes(layers.activation)
    results: list[tuple[Tensor, ...]] = []
    seen: list[Sequence[Tensor]] = []
    for piece in pieces(n_atoms, gy[:, :1].nbytes, whole=parameters):
        y = gy[:, piece]
        parts = [gx[:, piece], contract(y, vectors[:, piece])]
        gs, seen = pull_layers(layers, [slope[:, piece] for slope in slopes], parts)
        results.append((gs, y * c[:, piece, None]))
    gs, gv = join(results)
    own = pull_parameters(layers, run, seen) if parameters else _nothing(layers)
    return outputs_first(gs), outputs_first(gv) if carried else None, *own


def _both(
    gx: Tensor | None, gy: Tensor | None, n_features: int
) -> tuple[Tensor, Tensor]:
    """Bring cotangents of scalars and vectors to features first, zero where absent."""
    x = None if gx is None else features_first(gx)
    y = None if gy is None else features_first(gy)
    if x is None:
        assert y is not None
        x = y.new_zeros(2 * n_features, y.shape[1], y.shape[3])
    if y is None:
        y = x.new_zeros(n_features, x.shape[1], 3, x.shape[2])
    return x, y


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
    factors = _factors(m, layers.activation)
    results: list[tuple[Tensor, ...]] = []
    seen: list[Sequence[Tensor]] = []
    mixed: tuple[Tensor, Tensor] = (gs, gs)
    for piece in pieces(gs.shape[1], 3 * gs[:, :1].nbytes, whole=parameters):
        vectors = None if gv is None else gv[:, piece]
        result, seen, mixed = _pull_piece(
            (factors.piece(piece), mix, layers), gs[:, piece], vectors
        )
        results.append(result)
    new_gs, new_gv = join(results)
    gmix, own = None, _nothing(layers)
    if parameters:
        gmix = torch.einsum("oicn,icf->nof", torch.cat(mixed), v)
        own = pull_parameters(layers, m.run, seen)
    return outputs_first(new_gs), outputs_first(new_gv), gmix, *own


def _pull_piece(
    given: tuple[_Factors, Tensor, Layers], gs: Tensor, gv: Tensor | None
) -> tuple[tuple[Tensor, ...], list[Sequence[Tensor]], tuple[Tensor, Tensor]]:
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
    return (gs + from_s, pull_matrix(mix, [gu, gw], gv)), seen, (gu, gw)
