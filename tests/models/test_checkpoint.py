import os
import pickletools
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnforce.backbones.base import BACKBONES
from gnnforce.backbones.schnet import SchNet
from gnnforce.errors import ModelFileError, UnknownHeadError, UserError
from gnnforce.models import checkpoint
from gnnforce.models.checkpoint import describe, load, parse_dtype, plain
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements

from .fields import ARCHITECTURES, ELEMENTS, KINDS, evaluate, make_field

WANTED = ("energy", "forces", "stress")
CRYSTAL = five_elements(periodic=True)


@pytest.fixture(scope="module")
def model():
    return make_field("PaiNN", KINDS, repulsion=True)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


def same(one, other):
    for name, value in evaluate(one, CRYSTAL, *WANTED).items():
        np.testing.assert_array_equal(evaluate(other, CRYSTAL, *WANTED)[name], value)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_lost(architecture, dtype, tmp_path):
    """C54: equal to the last bit."""
    model = make_field(architecture, KINDS, repulsion=True, dtype=dtype)
    model.metadata["note"] = {"epochs": 3, "files": ["a.xyz"]}
    model.save(str(tmp_path / "model.pt"))
    again = load(str(tmp_path / "model.pt"))
    same(model, again)
    assert again.dtype == dtype
    assert not again.training
    assert again.heads == model.heads
    assert again.metadata == model.metadata
    assert again.references() == model.references()
    assert again.scales() == model.scales()
    assert describe(again) == describe(model)
    again.save(tmp_path / "again.pt")
    same(model, load(tmp_path / "again.pt"))


@pytest.mark.parametrize("repulsion", [False, True])
def test_nothing_is_lost_after_training_in_single_precision(repulsion, tmp_path):
    """The radii of the repulsion are not in the file; they must not have been rounded."""
    model = make_field("PaiNN", repulsion=repulsion).to(torch.float32).to(torch.float64)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    close = CRYSTAL.copy()
    close.positions[0] += [0.6, 0, 0]
    found, expected = evaluate(again, close), evaluate(model, close)
    np.testing.assert_array_equal(found["energy"], expected["energy"])


@pytest.mark.parametrize("dtype", ["float32", torch.float64])
def test_another_precision(path, dtype):
    assert load(path, dtype=dtype).dtype == parse_dtype(dtype)
    with pytest.raises(UserError, match="float32 or float64, not 'float16'"):
        load(path, dtype="float16")


SCRIPT = """
import sys, torch
content = torch.load(sys.argv[1])
print(sorted(content))
import gnnforce
model = gnnforce.load(sys.argv[1])
graph = gnnforce.AtomGraph.from_atoms(__import__("ase").Atoms("CO", [[0, 0, 0], [0, 0, 1.1]]), 5.0)
print(model.predict(graph, ["energy"])["energy"].flatten().tolist())
"""


@pytest.mark.slow
def test_in_another_process_and_folder(model, path, tmp_path):
    """C54: plain ``torch.load`` with its defaults, far from where it was written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path)],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    names, energies = run.stdout.splitlines()
    for name in (
        "cutoff",
        "elements",
        "heads",
        "units",
        "references",
        "dtype",
        "versions",
    ):
        assert f"'{name}'" in names
    from ase import Atoms

    expected = evaluate(model, Atoms("CO", [[0, 0, 0], [0, 0, 1.1]]))["energy"]
    assert energies == str(expected.tolist())
    assert not list(elsewhere.iterdir())


def test_a_file_names_no_class_of_the_package(path):
    """C54: so that renaming one does not break files."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        data = archive.read(name)
    modules = {
        str(argument).split(" ")[0]
        for code, argument, _ in pickletools.genops(data)
        if code.name in ("GLOBAL", "STACK_GLOBAL")
    }
    assert modules
    assert all(one.split(".")[0] in ("torch", "collections") for one in modules)


def test_loading_writes_nothing(path):
    folder = path.parent
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.iterdir()}
    folder.chmod(0o555)
    try:
        load(path)
    finally:
        folder.chmod(0o755)
    after = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.iterdir()}
    assert after == before


def test_loading_draws_no_random_numbers(path):
    before = torch.get_rng_state()
    load(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_permissions_are_those_of_any_file(model, tmp_path):
    before = os.umask(0o027)
    try:
        model.save(tmp_path / "model.pt")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.pt").stat().st_mode) == 0o640


@pytest.mark.parametrize("fraction", [0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_truncated_files(path, fraction):
    data = path.read_bytes()
    path.write_bytes(data[: int(fraction * len(data))])
    with pytest.raises(ModelFileError, match=one_line(path, "truncated")):
        load(path)


def one_line(path: Path, words: str) -> str:
    return f"^[^\n]*{re.escape(str(path))}[^\n]*{words}[^\n]*$"


@pytest.mark.parametrize(
    "content",
    [b"3\n\nH 0 0 0\n", b"{}", bytes(range(256)) * 50, b"PK\x03\x04", b"\x80\x02}."],
)
def test_other_files(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=one_line(path, "not a gnnforce model file")):
        load(path)


def test_random_damage_is_an_error_of_the_file(path):
    """Any flipped bytes: refused in one line, or harmless."""
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(data)
        for place in rng.integers(0, min(len(data), 6000), 3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            load(path)
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_pickled_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    torch.save({"format": checkpoint.FORMAT, "x": Evil()}, tmp_path / "model.pt")
    with pytest.raises(ModelFileError, match="not a gnnforce model file"):
        load(tmp_path / "model.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 99}, "format version 99, this .* up to 1; update gnnforce"),
        ({"format_version": None}, "format version None"),
        ({"format": "another"}, "is not a gnnforce model file"),
        ({"backbone": {"name": "Painn", "arguments": {}}}, "'Painn'.*mean 'PaiNN'"),
        ({"backbone": {"name": "PaiNN", "arguments": {"depth": 3}}}, "does not fit"),
        ({"backbone": {}}, "does not fit this version"),
        ({"heads": [{"name": "sum", "colour": 3}]}, "does not fit this version"),
        ({"heads": [{"name": "sum"}]}, "does not fit this version"),
        ({"state": {}}, "does not fit this version"),
        ({"state": None}, "does not fit this version"),
    ],
)
def test_content_that_does_not_fit(path, changes, message):
    content = torch.load(path, weights_only=True) | changes
    torch.save(content, path)
    with pytest.raises(ModelFileError, match=message) as error:
        load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "name", ["backbone", "heads", "state", "dtype", "metadata", "repulsion"]
)
def test_content_that_misses(path, name):
    content = torch.load(path, weights_only=True)
    del content[name]
    torch.save(content, path)
    with pytest.raises(ModelFileError, match="does not fit this version"):
        load(path)


def test_no_file(tmp_path, model):
    for place in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(ModelFileError, match="there is no model file"):
            load(place)
    with pytest.raises(ModelFileError, match="there is no folder"):
        model.save(tmp_path / "none" / "model.pt")


def test_metadata(tmp_path):
    """C54: one numpy number would make the file unreadable."""
    model = make_field("SchNet")
    model.metadata = {
        "rmse": np.float64(0.5),
        "epochs": np.int64(3),
        "flag": np.bool_(True),
        "tensor": torch.tensor(2.0),
        "array0": np.array(7),
        "text": np.str_("abc"),
        "size": (1, 2.5, None),
        "path": Path("a") / "b",
        "nested": [{"E0": {1: np.float32(-13.5)}}],
    }
    model.save(tmp_path / "model.pt")
    assert load(tmp_path / "model.pt").metadata == {
        "rmse": 0.5,
        "epochs": 3,
        "flag": True,
        "tensor": 2.0,
        "array0": 7,
        "text": "abc",
        "size": [1, 2.5, None],
        "path": os.path.join("a", "b"),
        "nested": [{"E0": {1: -13.5}}],
    }


@pytest.mark.parametrize(
    "value",
    [np.zeros(3), object(), {1, 2}, np.datetime64("2026-12-01"), np.longdouble(1), 1j],
)
def test_metadata_that_cannot_be_saved(path, model, value):
    """Refused by the name of its place; the file from before stays whole."""
    before = path.read_bytes()
    other = make_field("SchNet")
    other.metadata = {"run": [{"what": value}]}
    with pytest.raises(
        ModelFileError, match=r"metadata\['run'\]\[0\]\['what'\] of the model"
    ):
        other.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.pt"]
    assert plain(model.metadata, "metadata") == {}


def test_a_failed_save_leaves_the_old_file(path, model, monkeypatch):
    before = path.read_bytes()

    def full(_, name):
        Path(name).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ModelFileError, match=r"cannot save .*model.pt: No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.pt"]


def test_a_backbone_of_the_users_own(tmp_path, monkeypatch):
    class Mine(SchNet):
        pass

    model = ForceField(Mine(ELEMENTS, n_features=4, n_layers=1), [Head("a")])
    model.save(tmp_path / "model.pt")
    assert type(load(tmp_path / "model.pt").backbone) is Mine
    monkeypatch.delitem(BACKBONES, "Mine")
    with pytest.raises(
        ModelFileError, match="backbone 'Mine', which is not defined here"
    ):
        load(tmp_path / "model.pt")


def test_heads_are_asked_by_name_after_loading(path):
    with pytest.raises(UnknownHeadError, match="the model has sum, linear, mean, pool"):
        load(path).outputs.slice("energy")
