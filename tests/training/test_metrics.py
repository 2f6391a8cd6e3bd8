import numpy as np
import pytest
import torch

from gnnforce.training.batches import join
from gnnforce.training.metrics import (
    ErrorSums,
    atom_counts,
    describe_metrics,
    head_weights,
)

from .helpers import h2, label


def two_graphs():
    """Head a is labeled in both, b in the second only and only its first atom."""
    first = label(h2(), [1.0, None], [np.ones((2, 3)), None])
    second = label(h2(), [3.0, 5.0], [np.zeros((2, 3)), np.full((2, 3), 2.0)])
    second["forces_mask"][1, 1] = False
    return [first, second]


def means_of_zero(graph):
    return {
        "energy": torch.zeros(2, graph.n_graphs, dtype=torch.float64),
        "forces": torch.zeros(2, graph.n_atoms, 3, dtype=torch.float64),
    }


def test_only_what_is_labeled_counts():
    graph = join(two_graphs())
    sums = ErrorSums(["a", "b"])
    sums.add(graph, means_of_zero(graph))
    metrics = sums.metrics()
    assert metrics["a"]["energy"]["mae"] == 2.0
    assert metrics["a"]["energy"]["rmse"] == pytest.approx(5**0.5)
    assert metrics["a"]["energy_per_atom"]["mae"] == 1.0
    assert metrics["a"]["forces"] == {
        "mae": 0.5,
        "rmse": pytest.approx(0.5**0.5),
        "count": 12,
        "unit": "eV/Angstrom",
    }
    assert metrics["b"]["energy"]["count"] == 1
    assert metrics["b"]["forces"]["count"] == 3
    assert metrics["b"]["forces"]["mae"] == 2.0


def test_nothing_labeled_is_no_zero():
    """Case C45."""
    graph = join(two_graphs()[:1])
    sums = ErrorSums(["a", "b"])
    sums.add(graph, means_of_zero(graph))
    metrics = sums.metrics()
    assert metrics["b"]["energy"]["rmse"] is None
    assert metrics["b"]["energy"]["count"] == 0
    lines = describe_metrics(metrics, "validation")
    assert lines[0].startswith("a: energy 500 meV/atom, forces 1000 meV")
    assert lines[1] == "b: no validation data"


def test_batches_add_up():
    graphs = two_graphs()
    whole, parts = ErrorSums(["a", "b"]), ErrorSums(["a", "b"])
    whole.add(join(graphs), means_of_zero(join(graphs)))
    for graph in graphs:
        parts.add(join([graph]), means_of_zero(join([graph])))
    assert torch.equal(parts.sums, whole.sums)


def test_stress_is_counted_by_component():
    stress = np.diag([1.0, 2.0, 3.0])
    graph = join([label(h2(), [None], [None], stress=[stress])])
    sums = ErrorSums(["a"])
    sums.add(graph, {"stress": torch.zeros(1, 1, 3, 3)})
    entry = sums.metrics()["a"]["stress"]
    assert entry["count"] == 9
    assert entry["mae"] == pytest.approx(6 / 9)


def test_atoms_and_members_are_counted():
    graphs = [label(h2(), [1.0], [None]), label(h2()[:1], [1.0], [None])]
    assert atom_counts(join(graphs)).tolist() == [2.0, 1.0]
    weights = head_weights([3, 1])
    assert torch.allclose(weights.sum(dim=1), torch.ones(2).double())
    assert weights.shape == (2, 4)
