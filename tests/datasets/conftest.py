"""Small frames that the tests of data sets share."""

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms


def make_h2(length=0.74, *, energy=None, force=None, **info):
    """H2 along z; a force pulls the second atom up and the first one down."""
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, length]])
    if energy is not None:
        atoms.info["energy"] = energy
    if force is not None:
        atoms.arrays["forces"] = np.array([[0, 0, -force], [0, 0, force]], dtype=float)
    atoms.info.update(info)
    return atoms


@pytest.fixture
def h2():
    return make_h2


@pytest.fixture
def write(tmp_path):
    """Write a text and return its path."""

    def write(text: str, name: str = "frames.xyz") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
