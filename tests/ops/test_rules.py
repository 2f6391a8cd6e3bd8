# ruff: noqa: ARG004  (autograd.Function prescribes names)

import pytest
import torch

from gnnforce.ops.rules import (
    Primitive,
    apply_rule,
    is_batched,
    kept_or_made,
    remember_tensors,
    wanted,
)

SEEN: list = []


class Product(Primitive):
    """``(a * b, a + b)``, which notes what its rule is given and asked for."""

    @staticmethod
    def forward(name, a, b):
        return a * b, a + b

    @staticmethod
    def setup_context(ctx, inputs, output):
        remember_tensors(ctx, inputs)
        ctx.save_for_backward(*inputs[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads):
        a, b = ctx.saved_tensors
        asked = wanted(ctx)

        def rule(cotangents):
            SEEN.append((cotangents, asked))
            of_product, of_sum = cotangents
            of_a = of_b = None
            if of_product is not None:
                of_a, of_b = of_product * b, of_product * a
            if of_sum is not None:
                of_a = of_sum if of_a is None else of_a + of_sum
                of_b = of_sum if of_b is None else of_b + of_sum
            return of_a, of_b

        return None, *apply_rule(rule, grads)


@pytest.fixture
def leaves():
    SEEN.clear()
    a, b = torch.randn(2, 4, dtype=torch.float64)
    return a.requires_grad_(), b.requires_grad_()


def pull(outputs, inputs, cotangents, **options):
    def one(cotangent):
        return torch.autograd.grad(outputs, inputs, cotangent, **options)

    return torch.func.vmap(one)(cotangents)


def test_one_cotangent_is_a_row(leaves):
    a, b = leaves
    product, _ = Product.apply("x", a, b)
    g = torch.randn(4, dtype=torch.float64)
    of_a, of_b = torch.autograd.grad(product, [a, b], g)
    assert torch.equal(of_a, g * b)
    assert torch.equal(of_b, g * a)
    ((given, _),) = SEEN
    assert given[0].shape == (1, 4)
    assert given[1] is None


def test_all_cotangents_reach_the_rule_at_once(leaves):
    a, b = leaves
    product, total = Product.apply("x", a, b)
    g = torch.randn(5, 2, 4, dtype=torch.float64)

    def one(g):
        return torch.autograd.grad((product, total), [a, b], (g[0], g[1]))

    of_a, of_b = torch.func.vmap(one)(g)
    torch.testing.assert_close(of_a, g[:, 0] * b + g[:, 1])
    torch.testing.assert_close(of_b, g[:, 0] * a + g[:, 1])
    ((given, _),) = SEEN
    assert [one.shape for one in given] == [(5, 4), (5, 4)]
    assert not is_batched(given)  # the rule sees plain tensors


@pytest.mark.parametrize("axis", [0, 1])
def test_axis_of_outputs_is_brought_to_the_front(leaves, axis):
    a, b = leaves
    product, _ = Product.apply("x", a, b)
    g = torch.randn(5, 4, dtype=torch.float64)

    def one(g):
        return torch.autograd.grad(product, a, g)[0]

    rows = torch.func.vmap(one, in_dims=axis)(g if axis == 0 else g.T)
    torch.testing.assert_close(rows, g * b)
    assert SEEN[0][0][0].shape == (5, 4)


def test_batched_and_plain_cotangents_together(leaves):
    """What does not depend on the output is stretched to all of them."""
    a, b = leaves
    product, total = Product.apply("x", a, b)
    g, fixed = torch.randn(5, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def one(g):
        return torch.autograd.grad((product, total), a, (g, fixed))[0]

    torch.testing.assert_close(torch.func.vmap(one)(g), g * b + fixed)
    given, _ = SEEN[0]
    assert [one.shape for one in given] == [(5, 4), (5, 4)]


@pytest.mark.parametrize("which", [0, 1])
def test_absent_cotangents_stay_absent(leaves, which):
    a, b = leaves
    outputs = Product.apply("x", a, b)
    g = torch.randn(5, 4, dtype=torch.float64)
    (of_a,) = pull(outputs[which], [a], g)
    torch.testing.assert_close(of_a, g * b if which == 0 else g)
    given, _ = SEEN[0]
    assert [one is None for one in given] == [which == 1, which == 0]


def test_cotangents_of_an_outer_transform_are_refused(leaves):
    a, b = leaves
    product, total = Product.apply("x", a, b)
    g = torch.randn(5, 4, dtype=torch.float64)

    def outer(h):
        def inner(g):
            return torch.autograd.grad((product, total), a, (g, h))[0]

        return torch.func.vmap(inner)(g)

    with pytest.raises(NotImplementedError, match="innermost transform only"):
        torch.func.vmap(outer)(g)
    # the stack of transforms is as it was
    torch.testing.assert_close(pull(product, [a], g)[0], g * b)


def test_gradients_of_batched_rows(leaves):
    """What the rule computes is recorded: the second derivative by hand."""
    a, b = leaves
    product, _ = Product.apply("x", a, b)
    g = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    (of_a,) = pull(product, [a], g, create_graph=True)
    weights = torch.randn(5, 4, dtype=torch.float64)
    of_g, of_b = torch.autograd.grad((of_a * weights).sum(), [g, b])
    torch.testing.assert_close(of_g, weights * b)
    torch.testing.assert_close(of_b, (weights * g).sum(dim=0))


def test_wanted_is_what_the_pass_visits(leaves):
    a, b = leaves
    deep = 2 * b  # not a leaf
    for first, second, inputs, expected in (
        (a, b, [a], (False, True, False)),
        (a, b, [b], (False, False, True)),
        (a, b, [a, b], (False, True, True)),
        (a, deep, [a], (False, True, False)),
        (a, deep, [b], (False, False, True)),
        (a, deep, [deep], (False, False, True)),
        (a, b.detach(), [a], (False, True, False)),
    ):
        SEEN.clear()
        product, _ = Product.apply("x", first, second)
        torch.autograd.grad(product.sum(), inputs)
        assert SEEN[0][1] == expected


def test_wanted_by_a_backward_pass_is_everything(leaves):
    product, _ = Product.apply("x", *leaves)
    product.sum().backward()
    assert SEEN[0][1] == (False, True, True)
    SEEN.clear()
    product, _ = Product.apply("x", leaves[0], leaves[1].detach())
    product.sum().backward()
    assert SEEN[0][1] == (False, True, False)


def test_wanted_under_a_transform(leaves):
    a, b = leaves
    product, _ = Product.apply("x", a, 2 * b)
    pull(product, [a], torch.randn(5, 4, dtype=torch.float64))
    assert SEEN[0][1] == (False, True, False)


def test_both_ways_to_call(leaves):
    """Outside of transforms the short way in, inside PyTorch's, with one result."""
    a, b = leaves
    short = Product.apply("x", a, b)
    with torch.no_grad():
        plain = Product.apply("x", a, b)
    for one, other in zip(short, plain, strict=True):
        assert torch.equal(one, other)
    assert not plain[0].requires_grad
    slope = torch.func.grad(lambda a: Product.apply("x", a, b.detach())[0].sum())
    torch.testing.assert_close(slope(a.detach()), b.detach())


def test_what_is_kept_is_used_only_where_nothing_is_recorded():
    made = []

    def make():
        made.append(1)
        return "made"

    with torch.no_grad():
        assert kept_or_made(["kept"], make) == "kept"
        assert not made
        assert kept_or_made([], make) == "made"
    with torch.enable_grad():
        assert kept_or_made(["kept"], make) == "made"
    assert len(made) == 2
