import pytest
import torch
from ase import Atoms
from torch_geometric.data import Batch

from gnnforce.errors import DataError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import edge_vectors
from gnnforce.testing.systems import skewed_pair, water

H2 = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])


def graphs_of(*structures):
    return [AtomGraph.from_atoms(atoms, 5.0) for atoms in structures]


def test_fields_follow_one_another():
    graphs = graphs_of(water(), Atoms("H"), skewed_pair(), Atoms())
    joined = batch(graphs)
    assert isinstance(joined, AtomGraph)
    assert isinstance(joined, Batch)
    assert joined.n_graphs == joined.num_graphs == 4
    assert joined.n_atoms == joined.num_nodes == 6
    assert joined.n_edges == sum(graph.n_edges for graph in graphs)
    assert joined.graph_index.tolist() == [0, 0, 0, 1, 2, 2]
    assert joined.ptr.tolist() == [0, 3, 4, 6, 6]
    for name in ("positions", "numbers", "cell", "pbc", "edge_shifts", "charge"):
        assert torch.equal(joined[name], torch.cat([graph[name] for graph in graphs]))
    assert (joined.edge_index[1].diff() >= 0).all()
    assert torch.equal(
        edge_vectors(joined), torch.cat([edge_vectors(graph) for graph in graphs])
    )
    assert torch.equal(joined[2].edge_index, graphs[2].edge_index)


@pytest.mark.parametrize("order", ["HL", "LH", "LL", "L"])
def test_edgeless_graphs_in_any_place(order):
    """C03."""
    graphs = graphs_of(*({"H": H2, "L": Atoms("H")}[letter] for letter in order))
    joined = batch(graphs)
    assert joined.n_graphs == len(order)
    assert joined.n_atoms == len(order) + order.count("H")
    assert joined.n_edges == 2 * order.count("H")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_label_in_some_graphs_only_is_refused(order):
    """C05: neither dropped nor a KeyError, in either order."""
    graphs = graphs_of(H2, H2)
    graphs[1].energy_labels = torch.zeros(1, 1)
    with pytest.raises(DataError, match=r"graph 1 differs .* fields energy_labels"):
        batch([graphs[number] for number in order])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_masked_labels_are_kept(order):
    graphs = graphs_of(H2, H2)
    for number, graph in enumerate(graphs):
        graph.energy_labels = torch.tensor([[float(number)]])
        graph.energy_mask = torch.tensor([[number == 1]])
    joined = batch([graphs[number] for number in order])
    assert joined.energy_mask[:, 0].tolist() == [number == 1 for number in order]
    assert joined.energy_labels[:, 0].tolist() == list(order)


def test_the_graphs_stay_as_they_were():
    graphs = graphs_of(H2, water())
    before = [graph.edge_index.clone() for graph in graphs]
    batch(graphs).positions += 1
    assert all(torch.equal(g.edge_index, b) for g, b in zip(graphs, before, strict=True))
    assert graphs[0].positions.max() == 0.74


def test_nothing_is_no_batch():
    with pytest.raises(DataError, match="at least one graph"):
        batch([])
