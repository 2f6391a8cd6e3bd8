import pickle
import warnings

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.datasets.dataset import StructureDataset, build_dataset
from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.errors import (
    DataError,
    GeometryError,
    UnknownElementError,
    UnknownHeadError,
)
from gnnforce.graph.batch import batch

FIELDS = {
    "energy_labels": ((1, 3), torch.float64),
    "energy_mask": ((1, 3), torch.bool),
    "forces_labels": ((2, 3, 3), torch.float64),
    "forces_mask": ((2, 3), torch.bool),
    "stress_labels": ((1, 3, 3, 3), torch.float64),
    "stress_mask": ((1, 3), torch.bool),
    "frame_weight": ((1,), torch.float64),
    "frame_id": ((1,), torch.int64),
}


def test_fields_are_all_there_and_absent_labels_are_masked(h2):
    frames = [h2(a_energy=-1.0, force=0.5, weight=2.0), h2(0.9, c_energy=-3.0)]
    specs = [LabelSpec("a", forces="forces"), LabelSpec("c")]
    dataset = build_dataset(frames, specs, 5.0, heads=["c", "b", "a"])
    for graph in dataset:
        for name, (shape, dtype) in FIELDS.items():
            assert graph[name].shape == shape, name
            assert graph[name].dtype == dtype, name
            assert torch.isfinite(graph[name]).all()
    first, second = dataset
    assert first.energy_labels.tolist() == [[0, 0, -1]]
    assert first.energy_mask.tolist() == [[False, False, True]]
    assert first.forces_labels[1].tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 0.5]]
    assert first.forces_mask.tolist() == [[False, False, True]] * 2
    assert second.energy_labels.tolist() == [[-3, 0, 0]]
    assert not second.forces_mask.any()
    assert [float(graph.frame_weight) for graph in dataset] == [2.0, 1.0]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_presence_of_labels_survives_batching(h2, order):  # C05
    frames = [h2(), h2(0.9, energy=-1.0)]
    dataset = build_dataset(frames, [LabelSpec("a")], 5.0)
    joined = batch([dataset[row] for row in order])
    assert joined.energy_mask[:, 0].tolist() == [row == 1 for row in order]
    assert joined.energy_labels[:, 0].tolist() == [-1.0 * (row == 1) for row in order]
    assert joined.frame_id.tolist() == order
    assert joined.forces_labels.shape == (4, 1, 3)


def test_stress_of_some_frames(h2):
    box = Atoms("H", [[0, 0, 0]], cell=[5, 5, 5], pbc=True)
    box.info |= {"energy": 0.0, "stress": np.arange(6.0)}
    dataset = build_dataset([h2(energy=1.0), box], [LabelSpec("a")], 3.0)
    joined = batch(list(dataset))
    assert joined.stress_mask[:, 0].tolist() == [False, True]
    assert joined.stress_labels[1, 0].tolist() == [[0, 5, 4], [5, 1, 3], [4, 3, 2]]


def test_large_energies_are_float64_in_a_float32_data_set(h2):
    frames = [h2(energy=-123456.0001, force=0.1)]
    table = extract_labels(frames, [LabelSpec("a")])
    graph = StructureDataset(frames, table, ["a"], 5.0, torch.float32)[0]
    assert graph.energy_labels.item() == -123456.0001
    assert graph.forces_labels.dtype == graph.positions.dtype == torch.float32


def test_arrays_of_any_kind(h2):  # C32
    frames = [h2(energy=-1, force=0.5) for _ in range(3)]
    for array in (frames[1].arrays["forces"], frames[1].arrays["positions"]):
        array.setflags(write=False)
    backward = np.ascontiguousarray(frames[2].arrays["forces"][::-1])[::-1]
    frames[2].arrays["forces"] = backward.astype(">f8")
    frames[2].arrays["positions"] = np.asfortranarray(frames[2].positions)
    frames[2].arrays["numbers"] = frames[2].numbers.astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that it cannot write to
        dataset = build_dataset(frames, [LabelSpec("a")], 5.0)
    joined = batch(list(dataset))
    for name in ("numbers", "positions", "forces_labels"):
        for part in joined[name].reshape(3, -1):
            assert torch.equal(part, joined[name].reshape(3, -1)[0])
    assert joined.energy_labels.dtype == torch.float64


def test_subsets_share_graphs_and_keep_their_rows(h2):
    frames = [h2(0.7 + 0.1 * i, energy=float(i)) for i in range(4)]
    dataset = build_dataset(frames, [LabelSpec("a")], 5.0)
    part = dataset.subset([3, 1])
    assert [int(graph.frame_id) for graph in part] == [3, 1]
    assert part[0] is dataset[3]
    assert part.frames == [frames[3], frames[1]]
    assert part.table.labels[1]["a"].energy == 1.0
    assert len(part) == 2


def test_elements(h2):  # C14
    frames = [h2(energy=1.0), Atoms("SH2", np.eye(3), info={"energy": 1.0})]
    dataset = build_dataset(frames, [LabelSpec("a")], 5.0)
    assert dataset.numbers() == [1, 16]
    dataset.check_elements([1, 16, 8])
    with pytest.raises(UnknownElementError, match=r"frame 1 holds S, .* knows H, O"):
        dataset.check_elements([1, 8])


def test_files_and_dropped_frames(write):
    text = "".join(f"1\nenergy={e}\nH 0 0 {n}\n" for n, e in enumerate(["1", "nan", "3"]))
    path = write(text)
    with pytest.raises(DataError, match=r"frames.xyz: frame 1: .*nan"):
        build_dataset(path, [LabelSpec("a")], 5.0)
    dataset = build_dataset(str(path), [LabelSpec("a")], 5.0, on_bad="drop")
    assert len(dataset) == 2
    assert dataset[1].energy_labels.item() == 3.0
    assert any(
        "dropped 1 frame" in line and "frame 1" in line for line in dataset.summary()
    )


def test_bad_structures_are_refused_by_number(h2):
    frames = [h2(energy=1.0), h2(0.0, energy=1.0)]
    with pytest.raises(GeometryError, match="frame 1: "):
        build_dataset(frames, [LabelSpec("a")], 5.0)


def test_heads_and_frames_that_do_not_fit(h2):
    frames = [h2(energy=1.0)]
    with pytest.raises(
        UnknownHeadError, match=r"labels for head 'ab'.*Did you mean 'a_b'"
    ):
        build_dataset(frames, [LabelSpec("ab")], 5.0, heads=["a_b", "c"])
    table = extract_labels(frames, [LabelSpec("a")])
    with pytest.raises(DataError, match="2 frames, but labels of 1"):
        StructureDataset(frames * 2, table, ["a"], 5.0)


@pytest.mark.parametrize("key", ["charge", "total_charge"])
@pytest.mark.parametrize("spin", ["spin", "spin_multiplicity", "multiplicity"])
def test_charge_and_spin_are_read_and_counted(h2, key, spin):  # C21
    frames = [h2(energy=1.0, **{key: np.int64(-1), spin: 2.0}), h2(0.9, energy=1.0)]
    dataset = build_dataset(frames, [LabelSpec("a")], 5.0)
    joined = batch(list(dataset))
    assert joined.charge.tolist() == [-1, 0]
    assert joined.spin_multiplicity.tolist() == [2, 1]
    assert "total charge given in 1 of 2 frames" in dataset.summary()
    assert "spin multiplicity given in 1 of 2 frames" in dataset.summary()


def test_one_frame_of_one_atom():  # C34
    frames = [Atoms("H", [[0, 0, 0]], info={"energy": -13.6})]
    graph = build_dataset(frames, [LabelSpec("a")], 5.0)[0]
    assert graph.n_edges == 0
    assert graph.forces_labels.shape == (1, 1, 3)


def test_a_data_set_can_be_sent_to_a_worker(h2):
    dataset = build_dataset([h2(energy=1.0)], [LabelSpec("a")], 5.0)
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[0].positions, dataset[0].positions)
