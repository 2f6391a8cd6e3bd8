import json

import numpy as np
import pytest

from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError


def entry(**outputs):
    site = {"species": [{"element": "Si", "occu": 1}], "xyz": [0.0, 0.0, 0.0]}
    structure = {
        "@module": "pymatgen.core.structure",
        "lattice": {"matrix": [[5, 0, 0], [0, 5, 0], [0, 0, 5]]},
        "sites": [site],
    }
    return {"structure": structure, "outputs": outputs, "tag": "train"}


def test_labels_and_the_sign_and_order_of_the_stress(write):
    # kbar, xx yy zz xy yz xz, positive under compression
    one = entry(energy=-5, forces=[[0.5, 0, 0]], virial_stress=[10, 20, 30, 40, 50, 60])
    frames = read_frames(write(json.dumps([one]), "si.json"))
    labels = extract_labels(frames, [LabelSpec("energy")]).labels[0]["energy"]
    assert labels.energy == -5.0
    np.testing.assert_array_equal(labels.forces, [[0.5, 0, 0]])
    expected = -np.array([[10, 40, 60], [40, 20, 50], [60, 50, 30]]) / 1602.1766208
    np.testing.assert_allclose(labels.stress, expected, rtol=1e-6)


def test_damage_is_refused_with_the_frame(write):
    broken = entry(energy=1)
    broken["structure"]["sites"][0]["species"][0]["element"] = "Qq"
    with pytest.raises(DataError, match="frame 1: 'Qq' is no element"):
        read_frames(write(json.dumps([entry(energy=1), broken]), "si.json"))
    with pytest.raises(DataError, match="is no JSON"):
        read_frames(write('[{"@module": "pymatgen', "si.json"))
