import pytest
import torch
from ase import Atoms

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.readouts.head import Head, OutputTable
from gnnforce.readouts.pools import (
    column_cotangents,
    column_slopes,
    is_linear,
    pools_of,
    pools_of_all,
)
from gnnforce.readouts.stack import Features, HeadStack, pooled_features
from gnnforce.testing.systems import water

ELEMENTS = [1, 6, 8]
WIDTH = 4
POOLABLE = (
    Head("pool", members=5, kind="pooled", hidden=(6,)),
    Head("line", members=6, hidden=()),
    Head("pool2", kind="pooled", hidden=()),
    Head("flat", members=5, kind="node_mean", hidden=()),
)
MANY = tuple(Head(f"line{n}", members=4, hidden=()) for n in range(4))
DEEP = Head("deep", members=9)
FEW = Head("few", members=2, hidden=())


def make(heads):
    stack = HeadStack(heads, ELEMENTS, WIDTH).double()
    for number, head in enumerate(heads):
        stack.references.set_scales(
            {head.name: {z: 1 + 0.3 * number + 0.1 * z for z in ELEMENTS}}
        )
    return stack


def test_what_pays():
    """Only groups of more outputs than columns."""
    stack = make((*POOLABLE, DEEP, FEW))
    pools = pools_of(stack, stack.outputs, WIDTH)
    assert [head.name for head in pools.heads] == ["pool", "pool2", "line", "flat"]
    assert pools.n_columns == 3 * WIDTH
    assert not pools_of(stack, stack.outputs.select(["deep", "few"]), WIDTH).heads
    assert pools_of(stack, stack.outputs.select(["pool2"]), WIDTH).n_columns == 0
    assert pools_of(stack, stack.outputs.select(["flat"]), WIDTH).n_columns == WIDTH


def test_many_linear_heads_share_blocks_of_elements():
    stack = make(MANY)
    pools = pools_of(stack, stack.outputs, WIDTH)
    assert pools.by_element == MANY  # 16 outputs, 3 elements of 4 features
    assert pools.n_columns == 12


def test_all_or_none_for_combinations():
    stack = make((*POOLABLE, DEEP))
    assert pools_of_all(stack, stack.outputs, WIDTH) is None
    table = stack.outputs.select([head.name for head in POOLABLE])
    pools = pools_of_all(stack, table, WIDTH)
    assert set(pools.heads) == set(POOLABLE)
    assert pools_of_all(make(MANY), OutputTable(MANY), WIDTH).by_element == MANY
    assert is_linear(FEW)
    assert not is_linear(DEEP)
    assert not is_linear(POOLABLE[2])


@pytest.mark.parametrize("heads", [POOLABLE, MANY, (POOLABLE[1],), (*MANY, POOLABLE[0])])
def test_slopes_times_columns_are_the_slopes_in_node_features(heads):
    """Against autograd through the readouts, output by output."""
    stack = make(heads)
    structures = [water(), Atoms("C"), Atoms(), Atoms("CO", [[0, 0, 0], [0, 0, 1.1]])]
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    atoms = torch.randn(graph.n_atoms, WIDTH, dtype=torch.float64, requires_grad=True)
    isolated = torch.randn(3, WIDTH, dtype=torch.float64)
    features = Features(atoms, isolated)
    pools = pools_of_all(stack, stack.outputs, WIDTH)
    of_pooled = None
    if pools.pooled:
        sums = pooled_features(features, graph, stack.elements(graph.numbers))
        sums = sums.detach().expand(sum(h.members for h in pools.pooled), -1, -1)
        sums = sums.clone().requires_grad_()
        energy = stack.of_pooled(sums, graph, pools.pooled)
        (of_pooled,) = torch.autograd.grad(energy.sum(), sums)
    slopes = column_slopes(pools, stack, graph, of_pooled)
    columns = column_cotangents(pools, stack, graph, atoms)
    assert columns.shape == (pools.n_columns, graph.n_atoms, WIDTH)
    out = stack(features, graph, None, stack.outputs)
    for head in heads:
        rows = out.energy[stack.outputs.slice(head.name)]
        for member, energy in enumerate(rows):
            (expected,) = torch.autograd.grad(energy.sum(), atoms, retain_graph=True)
            own = slopes[head.name][member][graph.graph_index]  # (n_atoms, n_columns)
            found = torch.einsum("it,tif->if", own, columns)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
            assert expected.abs().max() > 1e-3
