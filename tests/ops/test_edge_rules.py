"""The rule by itself; what it is part of is tested in ``test_aggregate.py``."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnforce.ops.edge_rules import pull_sum
from gnnforce.ops.edges import Paths, layer_of
from gnnforce.ops.slots import make_slots

from .dense import basis, basis_slope, hub_graph

N_FEATURES, N_OUTPUTS = 16, 12


class Largest(TorchDispatchMode):
    """Notes the largest number of entries of a tensor that was made."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.numel = max(self.numel, one.untyped_storage().nbytes() // 8)
        return result


def layer_and_cotangents(paths, width=8):
    slots = make_slots(hub_graph(), 9, width)
    lengths = torch.where(slots.edge < slots.n_edges, 1.3, 9.0).double()
    value, slope = basis(lengths), basis_slope(lengths)
    n_paths = len(paths.embed) + len(paths.carry)
    weight = torch.randn(n_paths * N_FEATURES, 4, dtype=torch.float64)
    x = [torch.randn(9, N_FEATURES).double() for _ in paths.embed]
    y = [torch.randn(9, 2 * k + 1, N_FEATURES).double() for k in paths.carry]
    directions = torch.randn(len(lengths), 3).double()
    by_source = value[slots.slot_by_source]
    layer = layer_of(paths, slots, (directions, value, slope, by_source, weight, *x, *y))
    shapes = [
        (9, N_FEATURES) if k == 0 else (9, 2 * k + 1, N_FEATURES) for k in paths.degrees
    ]
    return layer, [torch.randn(N_OUTPUTS, *shape).double() for shape in shapes]


@pytest.mark.parametrize(
    "paths", [Paths((0,)), Paths((0, 1), (1,)), Paths((0, 1, 2), (1, 2))]
)
def test_cotangents_come_one_by_one_or_together(paths):
    layer, cotangents = layer_and_cotangents(paths)
    n_inputs = 6 + layer.n_paths
    edges, everything = layer.of_edges(slopes=True), (True,) * n_inputs
    together = pull_sum(layer, edges, tuple(cotangents), everything)
    assert len(together) == n_inputs
    for number in range(N_OUTPUTS):
        single = tuple(one[number : number + 1] for one in cotangents)
        alone = pull_sum(layer, edges, single, everything)
        for one, all_of_them in zip(alone, together, strict=True):
            assert (one is None) == (all_of_them is None)
            if one is not None:
                torch.testing.assert_close(one[0], all_of_them[number])


def test_nothing_is_computed_that_is_not_asked_for():
    layer, cotangents = layer_and_cotangents(Paths((0, 1), (1,)))
    edges = layer.of_edges(slopes=True)
    nothing = pull_sum(layer, edges, tuple(cotangents), (False,) * 9)
    assert nothing == (None,) * 9
    geometry = pull_sum(layer, edges, tuple(cotangents), (True, *(False,) * 8))
    assert [one is None for one in geometry] == [False, False] + [True] * 7
    weight = pull_sum(
        layer, edges, tuple(cotangents), (False,) * 5 + (True,) + (False,) * 3
    )
    assert [one is None for one in weight] == [True] * 5 + [False] + [True] * 3


@pytest.mark.parametrize(
    "paths", [Paths((0,)), Paths((0, 1), (1,)), Paths((0, 1, 2), (1, 2))]
)
def test_no_tensor_of_outputs_edges_and_features(paths):
    """Neither one of edges, outputs and components, when there are more features."""
    layer, cotangents = layer_and_cotangents(paths)
    edges = layer.of_edges(slopes=True)
    needed = (True, True, False, False, False, False, *(True,) * layer.n_paths)
    n_edges = layer.slots.n_edges
    with torch.no_grad(), Largest() as largest:
        pull_sum(layer, edges, tuple(cotangents), needed)
    assert largest.numel < n_edges * N_FEATURES * N_OUTPUTS
    with torch.no_grad(), Largest() as with_weights:
        pull_sum(layer, edges, tuple(cotangents), (*needed[:5], True, *needed[6:]))
    assert with_weights.numel >= n_edges * N_FEATURES * N_OUTPUTS  # the meter works
