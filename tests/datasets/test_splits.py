import json
import subprocess
import sys

import numpy as np
import pytest
from ase import Atoms
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnforce.datasets.duplicates import duplicate_frames
from gnnforce.datasets.splits import Split, split_frames
from gnnforce.errors import DataError


@pytest.fixture
def pairs(h2):
    """20 frames: ten bond lengths, each twice, in order (C33)."""
    return [h2(0.70 + 0.01 * (row // 2)) for row in range(20)]


def far(number):
    return [Atoms("H2", [[0, 0, 0], [0, 0, 1.0 + x]]) for x in range(number)]


def rows(split):
    return sorted(split.train + split.valid + split.test + split.unused)


def leaks(split, frames):
    sets = [
        [frames[row] for row in part] for part in (split.train, split.valid, split.test)
    ]
    return [
        pair
        for i, one in enumerate(sets)
        for other in sets[i + 1 :]
        for pair in duplicate_frames(one, other)
    ]


def test_a_fraction_of_repeated_frames(pairs):  # C33
    split = split_frames(pairs, fraction=0.2, seed=7)
    assert len(split.valid) == 4
    assert len(split.train) == 16
    assert rows(split) == list(range(20))
    assert leaks(split, pairs) == []
    assert split_frames(pairs, fraction=0.2, seed=7) == split
    assert split_frames(pairs, fraction=0.2, seed=8) != split


def test_the_same_on_every_machine(pairs):  # C33
    assert split_frames(pairs, fraction=0.2, seed=7).valid == [0, 1, 16, 17]


@pytest.mark.slow
def test_the_same_in_another_process(pairs):  # C33
    code = (
        "from ase import Atoms\nfrom gnnforce.datasets.splits import split_frames\n"
        "f = [Atoms('H2', [[0, 0, 0], [0, 0, 0.70 + 0.01 * (i // 2)]]) for i in range(20)]\n"
        "print(split_frames(f, fraction=0.2, seed=7).valid)"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == split_frames(pairs, fraction=0.2, seed=7).valid


def test_numbers_are_met_and_drawn_from_all_frames(pairs):  # C33
    largest = []
    for seed in range(5):
        split = split_frames(pairs, n_train=3, n_valid=3, seed=seed)
        assert (len(split.train), len(split.valid)) == (3, 3)
        assert rows(split) == list(range(20))
        assert leaks(split, pairs) == []
        assert len(split.unused) == 2  # the twins of two structures that were split
        assert "2 frames are repeats" in split.messages[0]
        largest.append(max(split.train + split.valid))
    assert max(largest) > 5
    assert len(set(largest)) > 1


@given(
    places=st.lists(st.integers(0, 6), min_size=2, max_size=25),
    n_train=st.integers(1, 12),
    n_valid=st.integers(0, 12),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_no_frame_is_lost_or_in_two_sets(places, n_train, n_valid, seed):
    frames = [Atoms("H2", [[0, 0, 0], [0, 0, 1.0 + x]]) for x in places]
    assume(n_train + n_valid <= len(frames))
    try:
        split = split_frames(frames, n_train, n_valid, seed=seed)
    except DataError:
        assume(False)
    assert rows(split) == list(range(len(frames)))
    assert leaks(split, frames) == []
    assert len(split.valid) == n_valid
    assert len(split.train) <= n_train


def test_every_frame_is_drawn_about_equally_often():
    frames = far(10)
    counts = np.zeros(10)
    for seed in range(200):
        counts[split_frames(frames, fraction=0.3, seed=seed).valid] += 1
    assert counts.sum() == 600
    assert counts.min() > 35  # 60 expected, deviation 6.5
    assert counts.max() < 85


def test_isolated_atoms_are_for_training():
    atoms = [Atoms("H", [[0, 0, 0]]), Atoms("O", [[0, 0, 0]])]
    frames = [atoms[0], *far(8), atoms[1]]
    for seed in range(10):
        split = split_frames(frames, fraction=0.5, seed=seed)
        assert {0, 9} <= set(split.train)
        assert len(split.valid) == 5
        assert rows(split) == list(range(10))
        split = split_frames(frames, n_train=4, n_valid=3, seed=seed)
        assert {0, 9} <= set(split.train)
        assert (len(split.train), len(split.valid), len(split.test)) == (4, 3, 3)
    assert split.messages == ["2 isolated atoms stay in training"]
    assert len(split_frames(atoms, fraction=0.5).valid) == 1


def test_groups_stay_together(h2):
    frames = [h2(0.7 + 0.01 * i, molecule=i // 4) for i in range(20)]
    for seed in range(5):
        split = split_frames(frames, fraction=0.3, seed=seed, group_key="molecule")
        groups = [{row // 4 for row in part} for part in (split.train, split.valid)]
        assert groups[0].isdisjoint(groups[1])
        assert len(split.valid) == 4
        assert split.messages == ["4 instead of 6 frames for validation"]
        assert rows(split) == list(range(20))


def test_groups_that_share_a_structure_stay_together(h2):
    frames = [
        h2(0.7 + 0.1 * x, g=g)
        for x, g in [(0, "a"), (1, "a"), (1, "b"), (2, "c"), (3, "c")]
    ]
    for seed in range(4):
        split = split_frames(frames, n_valid=2, seed=seed, group_key="g")
        assert split.valid == [3, 4]


def test_a_frame_without_group(h2):
    with pytest.raises(
        DataError, match="frame 1 has no group 'g' in info, which has name"
    ):
        split_frames([h2(g=1), h2(0.8, name="x")], n_valid=1, group_key="g")


@pytest.mark.parametrize(
    ("number", "options", "message"),
    [
        (3, {"fraction": 0.1}, "0.1 of 3 frame.*leaves 0 for validation.*valid: null"),
        (1, {"fraction": 0.5}, "of 1 frame"),
        (3, {"fraction": 0.9}, "3 for validation and 0 for training"),
        (3, {"fraction": 1.0}, "between 0 and 1"),
        (3, {"n_valid": 3}, "3 frames cannot give some for training and 3"),
        (3, {"n_train": 2, "n_valid": 2}, "3 frames cannot give 2 for training and 2"),
        (3, {"n_train": 0}, "n_train must be at least 1"),
        (3, {"n_valid": -1}, "must not be negative"),
        (3, {"n_valid": 1, "fraction": 0.3}, "exclude each other"),
    ],
)
def test_what_does_not_fit(number, options, message):  # C34
    with pytest.raises(DataError, match=message):
        split_frames(far(number), **options)


def test_identical_frames_cannot_be_split(h2):  # C34
    with pytest.raises(DataError, match="4 frames are too few different ones"):
        split_frames([h2() for _ in range(4)], fraction=0.25)
    with pytest.raises(DataError, match="no frames are left to train on"):
        split_frames([h2() for _ in range(4)], n_valid=2)


def test_no_validation_when_none_is_asked(h2):
    split = split_frames([h2()])
    assert (split.train, split.valid) == ([0], [])


def test_a_saved_split_fits_its_structures_only(pairs, tmp_path):  # C33
    path = tmp_path / "split.json"
    split = split_frames(pairs, n_train=3, n_valid=3)
    split.save(path, pairs)
    assert Split.load(path, pairs) == split
    relabeled = [atoms.copy() for atoms in pairs]
    relabeled[0].info["energy"] = 1.0
    assert Split.load(path, relabeled) == split
    with pytest.raises(DataError, match="made for 20 frames, but there are 18"):
        Split.load(path, pairs[:18])
    with pytest.raises(DataError, match="other structures"):
        Split.load(path, pairs[::-1])


def test_files_that_are_no_split(pairs, tmp_path, write):
    with pytest.raises(DataError, match="there is no file"):
        Split.load(tmp_path / "none.json", pairs)
    for text in (
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 1, "n_frames": 20, "hash": "x"}',
    ):
        with pytest.raises(DataError, match="is no split file"):
            Split.load(write(text, "split.json"), pairs)
    with pytest.raises(DataError, match="another version"):
        Split.load(
            write('{"format": 2, "n_frames": 20, "hash": ""}', "split.json"), pairs
        )
