import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnforce.ops import slots as room
from gnnforce.ops.slots import choose_width, count, make_slots, slots_of

from .dense import GRAPHS, graphs, hub_graph, random_graph

WIDTHS = [None, 1, 3, 8, 16]


def check_layout(edge_index, n_atoms, slots):
    """Every promise of the docstring of ``Slots``, read edge by edge."""
    source, target = edge_index.tolist()
    n_edges, width = len(source), slots.width
    assert (slots.n_edges, slots.n_atoms) == (n_edges, n_atoms)
    assert len(slots.edge) == slots.n_blocks * width
    blocks = slots.block_target
    targets = list(range(n_atoms)) if blocks is None else blocks.tolist()
    assert len(targets) == slots.n_blocks
    assert all(0 <= atom < n_atoms for atom in targets)
    held = [edge for edge in slots.edge.tolist() if edge != n_edges]
    assert sorted(held) == list(range(n_edges))  # every edge in exactly one slot
    for place, edge in enumerate(slots.edge.tolist()):
        if edge == n_edges:
            assert slots.source[place] == targets[place // width]
            continue
        assert targets[place // width] == target[edge]
        assert slots.source[place] == source[edge]
        assert slots.slot[edge] == place
    check_order_of_sources(edge_index, n_atoms, slots)


def check_order_of_sources(edge_index, n_atoms, slots):
    source, target = edge_index.tolist()
    edges = slots.edge[slots.slot_by_source].tolist()
    assert sorted(edges) == list(range(len(source)))
    assert [source[e] for e in edges] == sorted(source)
    assert slots.target_by_source.tolist() == [target[e] for e in edges]
    ends = slots.source_ends.tolist()
    assert len(ends) == n_atoms + 1
    for atom in range(n_atoms):
        assert all(source[e] == atom for e in edges[ends[atom] : ends[atom + 1]])
    assert (ends[0], ends[-1]) == (0, len(source))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", GRAPHS)
def test_layout_of_odd_graphs(name, width):
    edge_index, n_atoms = GRAPHS[name]
    check_layout(edge_index, n_atoms, make_slots(edge_index, n_atoms, width))


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from(WIDTHS))
def test_layout_of_any_graph(graph, width):
    edge_index, n_atoms = graph
    check_layout(edge_index, n_atoms, make_slots(edge_index, n_atoms, width))


def test_several_blocks_of_one_atom():
    edge_index = hub_graph()
    slots = make_slots(edge_index, 9)
    assert slots.block_target is not None
    degree = torch.bincount(edge_index[1], minlength=9)
    blocks = torch.bincount(slots.block_target, minlength=9)
    assert blocks.tolist() == (-(-degree // slots.width)).tolist()
    assert blocks[4] > 1
    assert blocks[8] == 0


def test_upper_bound_of_blocks_where_nothing_is_read_back(monkeypatch):
    """A device other than the CPU: the bound holds, and blocks too many are empty."""
    for edge_index, n_atoms in GRAPHS.values():
        exact = make_slots(edge_index, n_atoms, 8)
        monkeypatch.setattr(room, "is_read", lambda _: False)
        bound = make_slots(edge_index, n_atoms, 8)
        monkeypatch.undo()
        assert bound.n_blocks == edge_index.shape[1] // 8 + n_atoms >= exact.n_blocks
        check_layout(edge_index, n_atoms, bound)


def test_width_is_chosen():
    assert choose_width(torch.tensor([12, 13, 12])) == (13, True)
    assert choose_width(torch.tensor([12] * 50 + [200])) == (8, False)
    assert choose_width(torch.zeros(3, dtype=torch.int64)) == (8, False)  # no blocks
    assert choose_width(torch.zeros(0, dtype=torch.int64)) == (1, True)


def test_chosen_width_leaves_the_fewest_slots_empty():
    for n_hub in (10, 40, 100, 1000):
        degree = torch.tensor([12] * 50 + [n_hub])
        found, single = choose_width(degree)
        cost = {
            w: room.BLOCK_PENALTY * float((-(-degree // w)).sum()) * w
            for w in room.WIDTHS
        }
        one_each = len(degree) * float(degree.max())
        assert single == (one_each <= min(cost.values()))
        assert found == (max(degree) if single else min(cost, key=cost.__getitem__))


def test_width_on_a_device_needs_no_degrees():
    degree = torch.empty(4, dtype=torch.int64, device="meta")  # holds no values
    assert choose_width(degree) == (room.WIDTH_ON_DEVICE, False)


def test_made_once_for_an_edge_index():
    edge_index = random_graph(5, 12)
    slots = slots_of(edge_index, 5)
    assert slots_of(edge_index, 5) is slots
    assert slots_of(edge_index, 6) is not slots
    assert slots_of(edge_index, 6).n_atoms == 6
    assert slots_of(edge_index.clone(), 5) is not slots


def test_edges_changed_in_place_are_laid_out_anew():
    edge_index = random_graph(5, 12)
    before = slots_of(edge_index, 5)
    edge_index[1] = edge_index[1].flip(0)
    after = slots_of(edge_index, 5)
    assert after is not before
    check_layout(edge_index, 5, after)


def test_edges_without_a_version_are_laid_out_every_time():
    with torch.inference_mode():
        edge_index = random_graph(5, 12)
        check_layout(edge_index, 5, slots_of(edge_index, 5))
        edge_index[1] = edge_index[1].flip(0)
        check_layout(edge_index, 5, slots_of(edge_index, 5))
    check_layout(edge_index, 5, slots_of(edge_index, 5))


def test_equal_edges_are_told_apart_by_identity():
    """Two tensors of equal contents have slots of their own, of which one may change."""
    one, other = random_graph(5, 12), random_graph(5, 12)
    slots_of(one, 5)
    other[0] = (other[0] + 1) % 5
    check_layout(other, 5, slots_of(other, 5))
    check_layout(one, 5, slots_of(one, 5))


def test_slots_are_freed_with_their_edges():
    edge_index = random_graph(5, 12)
    slots = weakref.ref(slots_of(edge_index, 5))
    n_kept = len(room._made)
    del edge_index
    gc.collect()
    assert slots() is None
    assert len(room._made) < n_kept


def test_blocks_are_views():
    slots = make_slots(random_graph(5, 12), 5, 4)
    values = torch.randn(slots.n_blocks * 4, 3, 2)
    blocks = slots.blocks(values)
    assert blocks.shape == (slots.n_blocks, 4, 3, 2)
    assert blocks.data_ptr() == values.data_ptr()


def test_count():
    index = torch.tensor([2, 0, 2, 2])
    assert count(index, 4).tolist() == [1, 0, 3, 0]
    assert count(index[:0], 2).tolist() == [0, 0]


def test_edges_changed_behind_the_version_counter_are_laid_out_again():
    raw = np.array([[1, 0, 2], [0, 1, 1]])
    edges = torch.from_numpy(raw)
    first = slots_of(edges, 3)
    assert slots_of(edges, 3) is first
    raw[1, 2] = 0  # numpy shares the memory and counts nothing
    again = slots_of(edges, 3)
    assert again is not first
    assert torch.equal(again.edge, make_slots(edges, 3).edge)
    edges.data[1, 2] = 1
    assert torch.equal(slots_of(edges, 3).edge, first.edge)
