import pytest
from ase import Atoms

from gnnforce.errors import DataError, GeometryError
from gnnforce.training.labeled import (
    check_duplicates,
    make_datasets,
    read_part,
    required_labels,
)

from .helpers import h2, h2_frames, lengths, make_model, settings, write_frames


@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [
        ({}, {}, ("energy",)),
        ({"forces": "f"}, {}, ("forces",)),
        ({"energy": "e", "virial": "v"}, {}, ("energy", "virial")),
        ({}, {"stress": 1.0}, ("energy", "stress")),
        ({}, {"energy": 0, "forces": 1.0}, ("forces",)),
        ({}, {"stress": 0}, ("energy",)),
    ],
)
def test_what_the_user_names_must_be_found(labels, weights, expected):
    config = settings({"heads": {"energy": labels}}, training={"weights": weights})
    assert required_labels(config) == expected


def test_frames_without_labels_are_left_out_and_counted(tmp_path):
    frames = h2_frames(lengths(3))
    frames.insert(1, h2(0.5))
    path = write_frames(tmp_path / "f.xyz", frames)
    lines: list[str] = []
    part = read_part(settings(), str(path), ("energy",), lines.append)
    assert part.rows == [0, 2, 3]
    assert "f.xyz: 1 frames without any label are left out" in lines
    (dataset,) = make_datasets(make_model(settings()), [part])
    # frames keep their number in the file
    assert [int(dataset[row]["frame_id"]) for row in range(3)] == [0, 2, 3]


def test_errors_name_the_file(tmp_path):
    frames = [*h2_frames([0.7]), Atoms("H2", [[0, 0, 0], [0, 0, 0]])]
    path = write_frames(tmp_path / "f.xyz", frames)
    part = read_part(settings(), str(path), ("energy",), lambda _: None)
    with pytest.raises(GeometryError, match=r"f\.xyz: frame 1"):
        make_datasets(make_model(settings()), [part])
    with pytest.raises(DataError, match=r"f\.xyz.*stress"):
        read_part(settings(), str(path), ("stress",), lambda _: None)


def test_duplicates_are_refused_unless_allowed(tmp_path):
    say = [].append
    paths = [
        write_frames(tmp_path / f"{n}.xyz", h2_frames(lengths(4)[n:])) for n in range(2)
    ]
    train, valid = (read_part(settings(), str(p), (), say) for p in paths)
    with pytest.raises(DataError, match="3 validation frames are also training frames"):
        check_duplicates(settings(), train, valid, None)
    check_duplicates(settings({"allow_duplicates": True}), train, valid, None)
    check_duplicates(settings(), train.pick([0]), valid, None)
