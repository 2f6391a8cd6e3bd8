import pytest
import torch

from gnnforce.ops.polar import FAR, polar
from gnnforce.ops.slots import make_slots

from .dense import CUTOFF, GRAPHS, assert_same, edge_vectors, pull_in_turn, pull_together


def made(name, width=None):
    edge_index, n_atoms = GRAPHS[name]
    slots = make_slots(edge_index, n_atoms, width)
    vectors = edge_vectors(edge_index.shape[1])
    return slots, vectors, polar(vectors, slots, CUTOFF)


def by_hand(vectors, slots):
    """Lengths and directions of slots, by operations that autograd knows."""
    far = vectors.new_tensor([[0, 0, FAR * CUTOFF]])
    rows = torch.cat([vectors, far])[slots.edge]
    lengths = rows.square().sum(dim=1).sqrt()
    return lengths, rows / lengths[:, None]


@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_values(name, width):
    slots, vectors, edges = made(name, width)
    assert edges.slots is slots
    assert_same(edges[1:], by_hand(vectors, slots), 1e-14)
    empty = edges.lengths[slots.edge == slots.n_edges]
    assert (empty > CUTOFF).all()


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_way_back(name, width, which):
    """Cotangents of lengths, of directions, of both; together and one after the other."""
    slots, vectors, edges = made(name, width)
    found = [edges[1:][number] for number in which]
    expected = [by_hand(vectors, slots)[number] for number in which]
    cotangents = [torch.randn(4, *one.shape, dtype=one.dtype) for one in found]
    rows = pull_in_turn(expected, [vectors], cotangents)
    assert_same(pull_together(found, [vectors], cotangents), rows, 1e-13)
    assert_same(pull_in_turn(found, [vectors], cotangents), rows, 1e-13)


def test_cotangents_may_depend_on_something():
    """What the way back is linear in may be differentiated: training on forces."""
    slots, vectors, edges = made("random", 4)
    results = []
    for outputs in (edges[1:], by_hand(vectors, slots)):
        torch.manual_seed(1)
        seeds = [
            torch.randn(2, *one.shape, dtype=one.dtype).requires_grad_()
            for one in outputs
        ]
        (rows,) = pull_together(outputs, [vectors], seeds, create_graph=True)
        results.append(torch.autograd.grad((rows**3).sum(), seeds))
    assert_same(results[0], results[1], 1e-12)


def test_nothing_asked():
    """An output that nothing depends on has no cotangent, and needs none."""
    _, vectors, edges = made("random")
    (row,) = torch.autograd.grad(
        edges.lengths.sum() * 0 + vectors.sum(), vectors, retain_graph=True
    )
    assert torch.equal(row, torch.ones_like(row))


def test_precision_is_kept():
    edge_index, n_atoms = GRAPHS["random"]
    slots = make_slots(edge_index, n_atoms)
    vectors = edge_vectors(edge_index.shape[1]).detach()
    single = polar(vectors.float(), slots, CUTOFF)
    exact = polar(vectors, slots, CUTOFF)
    assert single.lengths.dtype == single.directions.dtype == torch.float32
    torch.testing.assert_close(single.lengths.double(), exact.lengths, rtol=1e-6, atol=0)
