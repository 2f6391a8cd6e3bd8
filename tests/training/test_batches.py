import numpy as np
import pytest
import torch

from gnnforce.graph.batch import batch
from gnnforce.training.batches import (
    JoinedBatches,
    Process,
    TrainingStream,
    epoch_batches,
    join,
    share_of,
    validation_batches,
)

from .helpers import h2, h2_graphs, label, lengths


def ids(stream):
    return [graph["frame_id"].tolist() for graph in stream]


def test_join_equals_a_pyg_batch():
    graphs = [*h2_graphs([0.7, 0.9]), label(h2(5.0), [1.0], [None])]  # the last: no edges
    ours, theirs = join(graphs), batch(graphs)
    names = set(ours.keys()) - {"num_nodes"}
    assert names == set(theirs.keys()) - {"num_nodes", "ptr"}
    for name in names:
        assert torch.equal(ours[name], theirs[name]), name
    assert (ours.n_graphs, ours.n_atoms, ours.n_edges) == (3, 6, 4)


@pytest.mark.parametrize(
    ("n", "size"), [(1, 10), (3, 10), (10, 4), (450, 8), (5, 1), (9, 8)]
)
def test_an_epoch_has_every_frame_once_in_even_batches(n, size):
    batches = epoch_batches(n, size, seed=0, epoch=0)
    assert sorted(row for part in batches for row in part) == list(range(n))
    sizes = {len(part) for part in batches}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(batches) == -(-n // size)


def test_order_is_a_function_of_seed_and_epoch():
    np.random.seed(5)  # noqa: NPY002  (must not matter)
    one = epoch_batches(30, 4, seed=1, epoch=2)
    assert one == epoch_batches(30, 4, seed=1, epoch=2)
    assert one != epoch_batches(30, 4, seed=1, epoch=3)
    assert one != epoch_batches(30, 4, seed=2, epoch=2)


def test_stream_goes_on_where_the_position_is():
    stream = TrainingStream(h2_graphs(lengths(7)), 2, seed=0)
    every = ids(stream)
    assert len(every) == stream.n_batches == 4
    stream.position.batch = 3
    assert ids(stream) == every[3:]
    stream.position.epoch, stream.position.batch = 1, 0
    assert ids(stream) != every


def test_stream_stops_when_told():
    stream = TrainingStream(h2_graphs(lengths(6)), 2, seed=0)
    seen = 0
    for _ in stream:
        seen += 1
        stream.position.stopping = True
    assert seen == 1


def test_processes_share_every_batch_and_an_idle_one_takes_part():
    """Case C40: 5 frames in batches of 2 on 2 processes, and 1 frame on 2."""
    graphs = h2_graphs(lengths(5))
    parts = [
        list(TrainingStream(graphs, 2, seed=0, process=Process(rank, 2)))
        for rank in range(2)
    ]
    assert len(parts[0]) == len(parts[1]) == 3
    seen = [
        int(i)
        for part in parts
        for graph in part
        for i, w in zip(graph["frame_id"], graph["frame_weight"], strict=True)
        if w > 0
    ]
    assert sorted(seen) == [0, 1, 2, 3, 4]
    idle = JoinedBatches(graphs[:1], [[0]], Process(1, 2))[0]
    assert idle["frame_weight"].tolist() == [0.0]
    assert graphs[0]["frame_weight"].tolist() == [1.0]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_validation_has_every_frame_in_one_process(count):
    """Case C40: no padding, also with more processes than frames."""
    graphs = h2_graphs(lengths(5))
    parts = [validation_batches(graphs, 2, Process(rank, count)) for rank in range(count)]
    seen = [i for part in parts for graph in part for i in graph["frame_id"].tolist()]
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert share_of([4, 5, 6], Process(1, 2)) == [5]


@pytest.mark.slow
def test_workers_give_the_same_batches_and_leave_the_random_state():
    graphs = h2_graphs(lengths(5))
    before = torch.get_rng_state()
    alone = list(TrainingStream(graphs, 2, seed=0))
    helped = list(TrainingStream(graphs, 2, seed=0, workers=2))
    assert torch.equal(torch.get_rng_state(), before)
    assert [g["frame_id"].tolist() for g in helped] == [
        g["frame_id"].tolist() for g in alone
    ]
    assert torch.equal(helped[0].edge_index, alone[0].edge_index)
