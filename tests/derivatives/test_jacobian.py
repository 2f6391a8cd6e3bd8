import pytest
import torch
from ase import Atoms

from gnnforce.derivatives.jacobian import combine_nodes, contract_pooled
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.testing.systems import water


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("tail", [(3,), (3, 3)])
@pytest.mark.parametrize("index", [[0, 0, 0, 0], [0, 0, 2, 1]])
def test_every_row_uses_the_slopes_of_its_graph(index, tail):
    index = torch.tensor(index)
    n_graphs = int(index.max()) + 1
    slopes, rows = random(5, n_graphs, 2), random(2, 4, *tail)
    expected = torch.stack(
        [
            torch.einsum("nt,t...->n...", slopes[:, owner], rows[:, row])
            for row, owner in enumerate(index.tolist())
        ],
        dim=1,
    )
    for memory in (1, 200, 10**9):
        found = contract_pooled(slopes, rows, index, memory)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("structures", [(water(),), (water(), Atoms(), Atoms("H"))])
def test_combinations_weigh_the_outputs_of_each_graph(structures):
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    weights = random(2, 5, graph.n_graphs)
    cotangents = random(5, graph.n_atoms, 4)
    own = weights[:, :, graph.graph_index]
    expected = torch.einsum("cni,nif->cif", own, cotangents)
    for memory in (1, 10**9):
        found = combine_nodes(weights, cotangents, graph, memory)
        torch.testing.assert_close(found, expected)
