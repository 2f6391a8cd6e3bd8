import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.ops import bags
from gnnforce.ops.bags import send, send_contracted
from gnnforce.ops.slots import make_slots, slots_of

from .dense import GRAPHS, assert_same, random_graph

N_FEATURES, N_OUTPUTS = 3, 4


def operands(name, components=1, width=3):
    """Weights and factors by edge, a table, and the slots of a graph."""
    edge_index, n_atoms = GRAPHS[name]
    slots = make_slots(edge_index, n_atoms, width)
    n_edges = slots.n_edges
    weights = torch.randn(N_FEATURES, n_edges, dtype=torch.float64)
    factors = torch.randn(n_edges, components, dtype=torch.float64)
    table = torch.randn(N_FEATURES, n_atoms, components, N_OUTPUTS, dtype=torch.float64)
    return edge_index, slots, weights, factors, table


def by_source(edge_index):
    """Edges in the order of their source, as they were given where it is the same."""
    return torch.argsort(edge_index[0], stable=True)


def sum_by_hand(edge_index, weights, table):
    """One edge after the other."""
    out = torch.zeros_like(table)
    order = by_source(edge_index)
    for place, edge in enumerate(order.tolist()):
        source, target = edge_index[:, edge].tolist()
        out[:, source] += weights[:, place, None, None] * table[:, target]
    return out


def contracted_by_hand(edge_index, weights, factors, table):
    parts = [
        sum_by_hand(edge_index, weights * factors[:, m], table[:, :, m : m + 1])
        for m in range(factors.shape[1])
    ]
    return torch.stack(parts).sum(dim=0)[:, :, 0]


@pytest.mark.parametrize("max_terms", [2**21, 1, 64])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_sums_equal_loops_over_edges(name, components, max_terms, monkeypatch):
    monkeypatch.setattr(bags, "MAX_TERMS", max_terms)
    edge_index, slots, weights, factors, table = operands(name, components)
    found = send(weights, table, slots)
    contracted = send_contracted(weights, factors, table, slots)
    assert_same([found], [sum_by_hand(edge_index, weights, table)], 1e-13)
    expected = contracted_by_hand(edge_index, weights, factors, table)
    assert_same([contracted], [expected], 1e-13)


@pytest.mark.parametrize(("width", "max_products"), [(None, 2**18), (1, 1), (3, 50)])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"hub"}))
def test_gradients(name, components, width, max_products, monkeypatch):
    monkeypatch.setattr(bags, "MAX_PRODUCTS", max_products)
    _, slots, weights, factors, table = operands(name, components, width)
    inputs = [x.requires_grad_() for x in (weights, table)]
    assert gradcheck(lambda w, t: send(w, t, slots), inputs)
    every = [weights, factors.requires_grad_(), table]
    assert gradcheck(lambda w, y, t: send_contracted(w, y, t, slots), every)


@pytest.mark.parametrize("components", [1, 3])
def test_gradients_of_one_operand_alone(components):
    edge_index, slots, weights, factors, table = operands("random", components)
    for which in range(2):
        inputs = [weights.detach(), table.detach()]
        inputs[which].requires_grad_()
        (found,) = torch.autograd.grad(
            (send_contracted(inputs[0], factors, inputs[1], slots) ** 2).sum(),
            inputs[which],
        )
        expected = contracted_by_hand(edge_index, inputs[0], factors, inputs[1])
        (row,) = torch.autograd.grad((expected**2).sum(), inputs[which])
        assert_same([found], [row], 1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_second_derivatives(name):
    """Of the backward pass by everything that enters it."""
    _, slots, weights, factors, table = operands(name, 3)
    weights, table = (x.requires_grad_() for x in (weights, table))
    plain = table[:, :, :1].detach().clone().requires_grad_()
    for function, inputs in (
        (lambda w, t: send(w, t, slots), (weights, plain)),
        (lambda w, t: send_contracted(w, factors, t, slots), (weights, table)),
    ):
        assert gradgradcheck(function, inputs)


def test_a_backward_pass_that_is_differentiated_leaves_nothing_out():
    """``autograd.grad`` passes by the error of ``once_differentiable`` without a word."""
    edge_index, slots, weights, _, table = operands("random")
    inputs = weights.requires_grad_(), table.requires_grad_()
    found = []
    for total in (send(*inputs, slots), sum_by_hand(edge_index, *inputs)):
        rows = torch.autograd.grad((total**3).sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(sum((r**2).sum() for r in rows), inputs))
    assert_same(found[0], found[1], 1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("components", [1, 3])
def test_batched_cotangents_do_not_fall_back_to_slices(components):
    _, slots, weights, factors, table = operands("random", components)
    inputs = weights.requires_grad_(), table.requires_grad_()
    total = send_contracted(weights, factors, table, slots)
    cotangents = torch.randn(5, *total.shape, dtype=total.dtype)

    def pull(cotangent):
        return torch.autograd.grad(total, inputs, cotangent, retain_graph=True)

    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        found = torch.func.vmap(pull)(cotangents)
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)
    each = [pull(cotangent) for cotangent in cotangents]
    expected = [torch.stack(rows) for rows in zip(*each, strict=True)]
    assert_same(found, expected, 1e-13)


def test_index_tables_belong_to_the_slots():
    """Tables of one graph are not those of another, nor of another number of features."""
    results = []
    for seed in (0, 1):
        edge_index = random_graph(6, 30, seed)
        slots = slots_of(edge_index, 6)
        for n_features in (3, 5):
            weights = torch.randn(n_features, 30, dtype=torch.float64)
            table = torch.randn(n_features, 6, 1, 2, dtype=torch.float64)
            for _ in range(2):  # made, then found
                results.append(send(weights, table, slots))
                expected = sum_by_hand(edge_index, weights, table)
                assert_same([results[-1]], [expected], 1e-13)


@pytest.mark.parametrize("terms", [1, 3])
def test_wide_tables_of_places(terms, monkeypatch):
    """Where 32 bits do not suffice, 64 are used, with the same sums."""
    _, slots, weights, factors, table = operands("random", terms)
    narrow = send_contracted(weights, factors, table, slots)
    index, ends = bags._by_source(slots, N_FEATURES, terms)
    assert index.dtype == ends.dtype == torch.int32
    monkeypatch.setattr(bags, "INT32", 1)
    slots.cache.clear()
    assert torch.equal(send_contracted(weights, factors, table, slots), narrow)
    index, ends = bags._by_source(slots, N_FEATURES, terms)
    assert index.dtype == ends.dtype == torch.int64
