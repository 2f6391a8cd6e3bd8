import torch

from gnnforce.ops.edges import Paths, layer_of
from gnnforce.ops.slots import make_slots

from .dense import random_graph


def layer(slots, paths, n_features=2, n_basis=3):
    n_slots, n_paths = len(slots.edge), len(paths.embed) + len(paths.carry)
    value = torch.randn(n_slots, n_basis)
    slope = torch.randn(n_slots, n_basis)
    weight = torch.randn(n_paths * n_features, n_basis)
    x = [torch.randn(slots.n_atoms, n_features) for _ in paths.embed]
    y = [
        torch.randn(slots.n_atoms, *(() if not k else (2 * k + 1,)), n_features)
        for k in paths.carry
    ]
    directions = torch.randn(n_slots, 3, requires_grad=True)
    tensors = directions, value, slope, value[slots.slot_by_source], weight, *x, *y
    return layer_of(paths, slots, tensors), (value, slope, weight, x, y)


def test_degrees_of_results():
    assert Paths(embed=(2, 0), carry=(1, 0)).degrees == (0, 1, 2)
    assert Paths(carry=(1,)).degrees == (1,)


def test_columns_and_rows_of_a_layer():
    slots = make_slots(random_graph(4, 9), 4, 3)
    paths = Paths(embed=(0, 1), carry=(0, 1))
    made, (value, slope, weight, x, y) = layer(slots, paths)
    assert (made.n_paths, made.n_features) == (4, 2)
    assert not made.directions.requires_grad  # its derivative is the rule's business
    edges = made.of_edges(slopes=True)
    for number in range(4):
        block = weight[2 * number : 2 * number + 2]
        torch.testing.assert_close(edges.values[number], value @ block.T)
        torch.testing.assert_close(edges.slopes[number], slope @ block.T)
    for number in range(2):
        assert torch.equal(edges.x[number], x[number][slots.source])
    assert torch.equal(edges.y[0], y[0][slots.source][:, None])
    assert torch.equal(edges.y[1], y[1][slots.source])
    assert made.of_edges(slopes=False).slopes == ()


def test_rows_of_targets_in_blocks():
    edge_index = random_graph(4, 9)
    rows = torch.randn(2, 4)
    single, _ = layer(make_slots(edge_index, 4), Paths(embed=(0,)))
    assert single.slots.block_target is None
    assert single.to_blocks(rows, 1) is rows
    several, _ = layer(make_slots(edge_index, 4, 2), Paths(embed=(0,)))
    target = several.slots.block_target
    assert torch.equal(several.to_blocks(rows, 1), rows[:, target])
