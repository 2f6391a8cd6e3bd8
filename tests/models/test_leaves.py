import pytest
import torch
from ase import Atoms

from gnnforce.errors import GeometryError
from gnnforce.graph.views import edge_vectors
from gnnforce.models.leaves import FIELDS, check_cutoff, usable, with_isolated_atoms
from gnnforce.testing.systems import skewed_pair, water

from .fields import graph_of


def test_an_ordinary_graph_is_used_as_it_is():
    graph = graph_of(water())
    assert usable(graph) is graph


def test_tensors_of_inference_mode_are_copied():
    with torch.inference_mode():
        graph = graph_of(water(), skewed_pair())
        extra = graph.clone()
        extra.frame_id = torch.tensor([1, 2])
    for given in (graph, extra):
        copy = usable(given)
        assert not any(copy[name].is_inference() for name in FIELDS)
        for name in FIELDS:
            assert torch.equal(copy[name], given[name])
        assert torch.equal(copy.graph_index, given.graph_index)
        assert copy.n_graphs == 2
        assert given.positions.is_inference()


def test_one_isolated_atom_an_element():
    graph = graph_of(skewed_pair(), Atoms("H"), water())
    elements = [8, 1, 29, 6]
    more = with_isolated_atoms(graph, elements)
    assert more.n_atoms == graph.n_atoms + 4 == 10
    assert more.n_graphs == graph.n_graphs + 4 == 7
    assert more.numbers.tolist() == [29, 29, 1, 8, 1, 1, *elements]
    assert more.graph_index.tolist() == [0, 0, 1, 2, 2, 2, 3, 4, 5, 6]
    assert more.edge_index is graph.edge_index
    assert more.edge_index.max() < graph.n_atoms
    assert more.charge.tolist() == [0.0] * 7
    assert more.spin_multiplicity.tolist() == [1.0] * 7
    assert not more.pbc[3:].any()
    assert torch.equal(edge_vectors(more), edge_vectors(graph))
    assert graph.n_atoms == 6


def test_isolated_atoms_follow_dtype_and_leave_no_trace():
    """The rows are made once and shared: nothing may write to them."""
    for dtype in (torch.float64, torch.float32, torch.float64):
        graph = graph_of(water(), dtype=dtype)
        graph.positions.requires_grad_()
        more = with_isolated_atoms(graph, [1, 8])
        assert more.positions.dtype == more.cell.dtype == dtype
        assert not more.positions.requires_grad
        assert not more.positions[3:].any()
        more.positions += 1
        more.charge += 1
        more.numbers += 1
    with torch.inference_mode():  # made here first, used outside afterwards
        with_isolated_atoms(graph_of(water()), [1, 8, 3])
    more = with_isolated_atoms(graph_of(water()), [1, 8, 3])
    assert not more.positions.is_inference()
    assert more.numbers.tolist() == [8, 1, 1, 1, 8, 3]


def test_graph_must_hold_every_neighbor_of_the_model():
    for made_for in (5.0, 6.0):
        check_cutoff(graph_of(water(), cutoff=made_for), 5.0)
    pair = graph_of(water(), skewed_pair(), cutoff=4.5)
    with pytest.raises(GeometryError, match=r"made for a cutoff of 4\.5 .* is 5;"):
        check_cutoff(pair, 5.0)
    del pair.cutoff  # made by hand
    check_cutoff(pair, 5.0)
