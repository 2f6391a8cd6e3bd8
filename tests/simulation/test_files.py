import numpy as np
import pytest
from ase.build import molecule
from ase.io import read

from gnnforce.errors import DataError
from gnnforce.simulation.files import LOG, RESTART, TRAJECTORY, RunFiles, State, read_log


def state(files, step=1, **changes):
    values = {
        "step": step,
        "ensemble": "nve",
        "timestep_fs": 0.1,
        "numbers": [1],
        "positions": [[0.1 + 0.2, 1 / 3, np.pi]],
        "momenta": [[0.0, 0.0, 0.0]],
        "cell": [[0.0] * 3] * 3,
        "rng": dict(np.random.default_rng(0).bit_generator.state),
        "integrator": {},
        "sizes": files.sizes(),
    }
    return State(**{**values, **changes})


@pytest.fixture
def files(tmp_path):
    files = RunFiles(tmp_path / "deep" / "run")
    files.log({"step": 0, "epot": 1.5})
    files.append_frame(molecule("H2O"))
    return files


def test_state_keeps_every_bit(files):
    saved = state(files)
    files.save_state(saved)
    assert files.load_state() == saved


def test_log_and_frames_beyond_the_state_are_cut(files):
    files.save_state(state(files))
    files.log({"step": 1, "epot": 2.5})
    files.append_frame(molecule("CH4"))
    assert len(read(files.path(TRAJECTORY), index=":")) == 2
    files.load_state()
    assert len(read(files.path(TRAJECTORY), index=":")) == 1
    assert read_log(files.folder)["epot"].tolist() == [1.5]


def test_columns_stay_those_of_the_heading(files):
    again = RunFiles(files.folder)
    again.log({"epot": 3.5, "new": 1.0, "step": 2})
    log = read_log(files.path(LOG))
    assert list(log) == ["step", "epot"]
    assert log["step"].tolist() == [0, 2]


def test_damaged_restart_files(files):
    with pytest.raises(DataError, match="no run to restart"):
        files.load_state()
    for text in ("{", "[]", '{"format": 1}', '{"format": 99}', "3"):
        files.path(RESTART).write_text(text)
        with pytest.raises(DataError, match=RESTART):
            files.load_state()


def test_missing_and_empty_logs(tmp_path):
    with pytest.raises(DataError, match="no log"):
        read_log(tmp_path)
    (tmp_path / LOG).write_text("step,epot\n")
    with pytest.raises(DataError, match="no lines"):
        read_log(tmp_path)


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="folder"):
        RunFiles(tmp_path / "file" / "run")


def test_set_aside(files):
    aside = files.set_aside()
    assert aside.name == "previous_1"
    assert sorted(path.name for path in aside.iterdir()) == [LOG, TRAJECTORY]
    assert files.set_aside() is None
