import json

import numpy as np
import pytest
from ase import Atoms

from gnnforce.training.evaluate import evaluate

from .helpers import h2, h2_graphs, label, lengths, make_model, settings

HEADS = {"a": {"members": 3, "hidden": [4]}, "b": {"members": 1, "hidden": [4]}}


def make():
    return make_model(settings({"heads": {"a": {}}}, model={"heads": HEADS}))


def test_arrays_and_numbers_agree_with_predictions():
    model = make()
    forces = np.ones((2, 3))
    third = Atoms("H3", [[0, 0, 0], [0, 0, 0.8], [0, 0.9, 0]])
    graphs = [
        label(h2(0.7), [1.0, None], [forces, None]),
        label(third, [2.0, 5.0], [np.zeros((3, 3)), None]),
        label(h2(0.9), [None, 3.0], [forces, forces]),
    ]
    graphs[2]["forces_mask"][0, 0] = False
    result = evaluate(model, graphs, batch_size=2)
    energy = result.energy["a"]
    out = [model.predict(graph) for graph in graphs]
    assert energy.reference.tolist() == [1.0, 2.0]
    assert energy.frames.tolist() == [0, 1]
    assert energy.n_atoms.tolist() == [2, 3]
    for row in range(2):
        head = out[row].head("a")
        assert energy.mean[row] == pytest.approx(head.mean("energy").item(), rel=1e-12)
        assert energy.std[row] == pytest.approx(head.std("energy").item(), rel=1e-9)
    found = result.forces["a"]
    assert found.frames.tolist() == [0, 0, 1, 1, 1, 2]
    assert np.allclose(found.mean[-1], out[2].head("a").mean("forces")[1], atol=1e-12)
    assert np.allclose(found.std[-1], out[2].head("a").std("forces")[1], atol=1e-12)
    assert result.energy["b"].std is None  # one member has no deviation
    assert result.forces["b"].reference.shape == (2, 3)
    assert result.stress == {}
    entry = result.metrics["heads"]["a"]["forces"]
    error = found.mean - found.reference
    assert entry["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    assert entry["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-12)
    assert entry["count"] == error.size
    assert (result.metrics["n_frames"], result.metrics["n_atoms"]) == (3, 7)
    json.dumps(result.metrics, allow_nan=False)


def test_a_head_without_labels_has_no_numbers():
    """Case C45."""
    graphs = [label(h2(), [1.0, None], [None, None])]
    result = evaluate(make(), graphs)
    assert result.metrics["heads"]["b"]["energy"]["rmse"] is None
    assert "b" not in result.energy
    assert result.forces == {}


def test_stress_is_compared_where_it_is():
    crystal = Atoms("H2", [[0, 0, 0], [0, 0, 0.8]], cell=[2.5, 2.6, 2.7], pbc=True)
    graphs = [
        label(h2(), [1.0, None], [None, None]),
        label(crystal, [1.0, None], [None, None], stress=[np.eye(3), None]),
    ]
    model = make()
    result = evaluate(model, graphs)
    found = result.stress["a"]
    expected = model.predict(graphs[1], ["stress"]).head("a")
    assert found.frames.tolist() == [1]
    assert np.allclose(found.mean[0], expected.mean("stress")[0], atol=1e-13)
    assert np.allclose(found.std[0], expected.std("stress")[0], atol=1e-13)


def test_batch_size_does_not_matter():
    config = settings(model={"heads": {"energy": {"members": 2, "hidden": [4]}}})
    model, graphs = make_model(config), h2_graphs(lengths(5))
    one, two = (evaluate(model, graphs, batch_size=n) for n in (1, 4))
    assert np.allclose(one.forces["energy"].mean, two.forces["energy"].mean, atol=1e-13)
    assert np.array_equal(one.energy["energy"].frames, two.energy["energy"].frames)
