r"""What PaiNN does on each atom between two sums over neighbors, as one primitive.

Its rule works on cotangents with features first and outputs last
(:mod:`gnnforce.ops.rows`), a piece of the atoms at a time, so that what passes from one step
of the rule to the next stays in the cache.
"""

# ruff: noqa: ANN401, ARG004  (autograd.Function prescribes names and passes anything)

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
    outer,
    outputs_first,
    pieces,
    plus_outer,
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


class Update(NamedTuple):
    """Parameters of the update block, eqs. 9 and 10 of arXiv 2102.03150.

    Attributes:
        mix: ``M``, shape ``(2 n_features, n_features)``.
        layers: The perceptron, from ``2 n_features`` to ``3 n_features``, two layers.
        epsilon: Keeps the slope of a vector's length finite at zero.
    """

    mix: Tensor
    layers: Layers
    epsilon: float


def painn_node(
    scalars: tuple[Tensor, Tensor],
    vectors: tuple[Tensor | None, Tensor],
    update: Update,
    context: Layers | None,
) -> tuple[Tensor, ...]:
    r"""Add what the neighbors sent, update, and prepare what is sent next.

    .. math::
        s &\leftarrow s + \Delta s, \qquad v \leftarrow v + \Delta v, \qquad
        (u, w) = v M^T, \qquad q = \sqrt{\|w\|^2 + \epsilon} \\
        (a, b, c) &= \mathrm{MLP}(s, q), \qquad s \leftarrow s + c + b \odot \langle u, w
        \rangle, \qquad v \leftarrow v + a \odot u \\
        (x_0, x_1, d) &= \mathrm{MLP}'(s), \qquad y = d \odot v

    Args:
        scalars: ``s`` and its change, each ``(n_atoms, n_features)``.
        vectors: ``v`` (None where there is none yet) and its change, ``(n_atoms, 3,
            n_features)``.
        update: Parameters of the update.
        context: ``MLP'`` of the next layer, from ``n_features`` to ``3 n_features``; None
            after the last layer.

    Returns:
        New ``s, v, x_0, x_1, y``; after the last layer ``s`` alone.
    """
    given = [*scalars, *vectors, update.mix, *update.layers.flat()]
    if context is not None:
        given += context.flat()
    result: tuple[Tensor, ...] = _Node.apply(
        [], update.layers.activation, update.epsilon, *given
    )
    return result


class _Parts(NamedTuple):
    """Inputs of the primitive that are tensors."""

    s: Tensor
    ds: Tensor
    v: Tensor | None
    dv: Tensor
    mix: Tensor
    update: Layers
    context: Layers | None


def _parts(activation: Activation, tensors: Sequence[Any]) -> _Parts:
    s, ds, v, dv, mix, *flat = tensors
    update, context = flat[:4], flat[4:]
    layers = Layers.of(activation, context) if context else None
    return _Parts(s, ds, v, dv, mix, Layers.of(activation, update), layers)


class _Run(NamedTuple):
    """What is computed on the way, one row an atom.

    Attributes:
        v: Vectors before the update.
        mixed: ``u`` and ``w``, shape ``(n_atoms, 3, 2 n_features)``.
        dot: Their products, ``(n_atoms, n_features)``.
        update: The perceptron of the update.
        new_s: Scalars after the update.
        new_v: Vectors after the update, None after the last layer.
        context: The perceptron of the next layer, None after the last.
    """

    v: Tensor
    mixed: Tensor
    dot: Tensor
    update: Run
    new_s: Tensor
    new_v: Tensor | None
    context: Run | None


def _run(parts: _Parts, epsilon: float) -> _Run:
    s = parts.s + parts.ds
    v = parts.dv if parts.v is None else parts.v + parts.dv
    mixed = v @ parts.mix.T
    u, w = mixed.chunk(2, dim=-1)
    q = torch.sqrt((w * w).sum(dim=1) + epsilon)
    update = run_layers(torch.cat([s, q], dim=1), parts.update)
    a, b, c = update.result.chunk(3, dim=1)
    dot = (u * w).sum(dim=1)
    new_s = torch.addcmul(s + c, b, dot)
    if parts.context is None:
        return _Run(v, mixed, dot, update, new_s, None, None)
    new_v = torch.addcmul(v, a[:, None, :], u)
    return _Run(v, mixed, dot, update, new_s, new_v, run_layers(new_s, parts.context))


class _Node(Primitive):
    @staticmethod
    def forward(
        kept: list[_Run], activation: Activation, epsilon: float, *tensors: Any
    ) -> tuple[Tensor, ...]:
        run = _run(_parts(activation, tensors), epsilon)
        kept.append(run)
        s = run.new_s.detach()
        if run.context is None or run.new_v is None:
            return (s,)
        x_0, x_1, d = run.context.result.chunk(3, dim=1)
        y = d[:, None] * run.new_v
        return s, run.new_v.detach(), x_0.contiguous(), x_1.contiguous(), y

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
        parts = _parts(ctx.activation, ctx.saved_tensors)
        parameters = any(wanted(ctx)[7:])

        def rule(cotangents: Cotangents) -> Cotangents:
            run = kept_or_made(ctx.kept, lambda: _run(parts, ctx.epsilon))
            first = [None if g is None else features_first(g) for g in cotangents]
            return _pull(parts, run, first, parameters)

        return None, None, None, *apply_rule(rule, grads)


# Backward ------------------------------------------------------------------------------


class _Factors(NamedTuple):
    """What cotangents are multiplied with, features first, ``(f, n_atoms, [3,] 1)``."""

    u: Tensor
    w: Tensor
    unit: Tensor  # w / q
    dot: Tensor
    a: Tensor
    b: Tensor
    slope: Tensor
    new_v: Tensor | None
    d: Tensor | None
    next_slope: Tensor | None

    def piece(self, atoms: slice) -> "_Factors":
        cut: list[Any] = [None if x is None else x[:, atoms] for x in self]
        return _Factors(*cut)


def _factors(run: _Run, activation: Activation) -> _Factors:
    u, w = constant(run.mixed).chunk(2)  # (n_features, n_atoms, 3, 1)
    rows = [run.dot, run.update.result, run.update.inputs[0]]
    if run.context is not None:
        rows.append(run.context.result)
    dot, a, b, _, _, q, *phi = constant(torch.cat(rows, dim=1)).split(u.shape[0])
    (slope,) = run.update.slopes(activation)
    own = u, w, w / q[:, :, None], dot, a[:, :, None], b, slope
    if run.context is None or run.new_v is None:
        return _Factors(*own, None, None, None)
    (next_slope,) = run.context.slopes(activation)
    return _Factors(*own, constant(run.new_v), phi[2][:, :, None], next_slope)


class _Seen(NamedTuple):
    """Cotangents of what every matrix of a piece returned, for the parameters."""

    mixed: tuple[Tensor, Tensor]
    update: list[Sequence[Tensor]]
    context: list[Sequence[Tensor]] | None


def _pull(
    parts: _Parts, run: _Run, cotangents: list[Tensor | None], parameters: bool
) -> Cotangents:
    """Pull cotangents of all outputs back to every input."""
    factors = _factors(run, parts.update.activation)
    some = next(g for g in cotangents if g is not None)
    n_atoms, n_outputs = some.shape[1], some.shape[-1]
    shape = run.new_s.shape[1], n_atoms, n_outputs
    entries = 3 * shape[0] * n_outputs
    cuts = list(pieces(n_atoms, entries * some.element_size(), whole=parameters))
    given = _present(cotangents, shape, some)
    if len(cuts) == 1:
        (gs, gv), seen = _pull_piece(parts, factors, given)
        own = _to_parameters(parts, run, seen) if parameters else _nothing(parts)
    else:
        gs, gv = some.new_empty(shape), some.new_empty(shape[0], n_atoms, 3, n_outputs)
        for cut in cuts:
            piece = [None if g is None else g[:, cut] for g in given]
            _pull_piece(parts, factors.piece(cut), piece, (gs[:, cut], gv[:, cut]))
        own = _nothing(parts)
    of_s, of_v = outputs_first(gs), outputs_first(gv)
    return of_s, of_s, None if parts.v is None else of_v, of_v, *own


def _present(
    cotangents: list[Tensor | None], shape: tuple[int, int, int], some: Tensor
) -> list[Tensor | None]:
    """Put zeros where a cotangent is absent and arithmetic is done with it."""
    n_features, n_atoms, n_outputs = shape
    gs, *rest = cotangents
    if gs is None:
        gs = some.new_zeros(shape)
    if not rest:
        return [gs, None, None, None, None]
    gv, g0, g1, gy = rest
    g0 = some.new_zeros(shape) if g0 is None else g0
    g1 = some.new_zeros(shape) if g1 is None else g1
    if gy is None:
        gy = some.new_zeros(n_features, n_atoms, 3, n_outputs)
    return [gs, gv, g0, g1, gy]


def _pull_piece(
    parts: _Parts,
    f: _Factors,
    cotangents: list[Tensor | None],
    out: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[tuple[Tensor, Tensor], _Seen]:
    """Pull cotangents of some atoms back.

    Returns:
        Cotangents of ``s`` and ``v``, and of what the matrices returned.
    """
    gs, gv, g0, g1, gy = cotangents
    assert gs is not None
    next_seen = None
    if parts.context is not None:
        gs, gv, next_seen = _pull_context(parts.context, f, [gs, gv, g0, g1, gy])
    ga = torch.zeros_like(gs) if gv is None else contract(gv, f.u)
    both, seen = pull_layers(parts.update, [f.slope], [ga, gs * f.dot, gs])
    from_s, from_q = both.chunk(2)
    product = gs * f.b
    gu = outer(product, f.w)
    if gv is not None:
        gu = plus_product(gu, gv, f.a)
    gw = plus_outer(outer(product, f.u), from_q, f.unit)
    new_gs = torch.add(gs, from_s, out=out[0])
    new_gv = pull_matrix(parts.mix, [gu, gw], gv, out[1])
    return (new_gs, new_gv), _Seen((gu, gw), seen, next_seen)


def _pull_context(
    context: Layers, f: _Factors, cotangents: list[Tensor | None]
) -> tuple[Tensor, Tensor, list[Sequence[Tensor]]]:
    """Pull what is sent back to the scalars and vectors that are also kept."""
    gs, gv, g0, g1, gy = cotangents
    assert gy is not None
    assert f.new_v is not None
    assert f.d is not None
    sent = [g for g in (g0, g1, contract(gy, f.new_v)) if g is not None]
    slopes = [slope for slope in (f.next_slope,) if slope is not None]
    new_gs, seen = pull_layers(context, slopes, sent, gs)
    return new_gs, gy * f.d if gv is None else torch.addcmul(gv, gy, f.d), seen


def _to_parameters(parts: _Parts, run: _Run, seen: _Seen) -> tuple[Tensor | None, ...]:
    mix = torch.einsum("oicn,icf->nof", torch.cat(seen.mixed), run.v)
    own = mix, *pull_parameters(parts.update, run.update, seen.update)
    if parts.context is None or seen.context is None or run.context is None:
        return own
    return *own, *pull_parameters(parts.context, run.context, seen.context)


def _nothing(parts: _Parts) -> tuple[None, ...]:
    n_context = 0 if parts.context is None else 2 * len(parts.context.weights)
    return (None,) * (1 + 2 * len(parts.update.weights) + n_context)
