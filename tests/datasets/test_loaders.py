import random

import numpy as np
import pytest
import torch

from gnnforce.datasets.dataset import build_dataset
from gnnforce.datasets.labels import LabelSpec
from gnnforce.datasets.loaders import EpochBatches, make_loader
from gnnforce.errors import DataError


@pytest.fixture
def dataset(h2):
    frames = [h2(0.7 + 0.01 * i, energy=float(i)) for i in range(10)]
    return build_dataset(frames, [LabelSpec("a")], 5.0)


def order(loader):
    return [joined.frame_id.tolist() for joined in loader]


def test_every_frame_comes_once(dataset):
    loader = make_loader(dataset, 4, shuffle=True, seed=3)
    ids = order(loader)
    assert [len(part) for part in ids] == [4, 4, 2]
    assert len(loader) == 3
    assert sorted(row for part in ids for row in part) == list(range(10))
    assert order(make_loader(dataset, 4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_order_is_a_function_of_seed_and_epoch(dataset):
    loader = make_loader(dataset, 4, shuffle=True, seed=3)
    first = order(loader)
    assert order(loader) == first
    loader.set_epoch(1)
    second = order(loader)
    assert second != first
    loader.set_epoch(0)
    assert order(loader) == first
    other = make_loader(dataset, 4, shuffle=True, seed=4)
    assert order(other) != first


def test_order_does_not_depend_on_workers(dataset):  # C33
    alone = make_loader(dataset, 4, shuffle=True, seed=3)
    helped = make_loader(dataset, 4, shuffle=True, seed=3, workers=2)
    assert order(helped) == order(alone)


def test_the_global_random_state_is_left_alone(dataset):
    before = torch.get_rng_state(), random.getstate()
    state = str(np.random.mtrand._rand.get_state())
    order(make_loader(dataset, 4, shuffle=True, seed=3))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert str(np.random.mtrand._rand.get_state()) == state


def test_fewer_frames_than_a_batch(dataset):  # C34
    small = dataset.subset([0, 1, 2])
    for drop_last in (False, True):
        assert order(make_loader(small, 10, drop_last=drop_last)) == [[0, 1, 2]]


def test_last_batch(dataset):
    assert len(order(make_loader(dataset, 4, drop_last=True))) == 2
    assert len(order(make_loader(dataset, 5, drop_last=True))) == 2


def test_batches_by_edges():
    edges = [5, 3, 20, 4, 4, 4]
    batches = EpochBatches(edges, 10, shuffle=False, max_edges=10)
    assert list(batches) == [[0, 1], [2], [3, 4], [5]]
    assert len(batches) == 4
    shuffled = EpochBatches(edges, 2, shuffle=True, max_edges=10)
    for rows in shuffled:
        assert len(rows) <= 2
        assert len(rows) == 1 or sum(edges[row] for row in rows) <= 10


def test_batches_hold_graphs(dataset):
    joined = next(iter(make_loader(dataset, 4)))
    assert joined.n_graphs == 4
    assert joined.energy_labels[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": 1, "max_edges": 0}, "max_edges"),
    ],
)
def test_wrong_sizes(dataset, options, message):
    with pytest.raises(DataError, match=message):
        make_loader(dataset, **options)
    with pytest.raises(DataError, match="no frames to batch"):
        make_loader(dataset.subset([]), 4)
