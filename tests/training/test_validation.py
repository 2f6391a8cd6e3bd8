import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.training.batches import join, validation_batches
from gnnforce.training.validation import mean_predictions, validate

from .helpers import h2, h2_graphs, label, lengths, make_model, settings

HEADS = {"a": {"members": 3, "hidden": [4]}, "b": {"members": 1, "hidden": [4]}}


def make():
    return make_model(settings({"heads": {"a": {}}}, model={"heads": HEADS}))


def test_means_are_those_of_the_members_at_one_pull_back_a_head(monkeypatch):
    model, batch = make(), join(h2_graphs(lengths(3)))
    out = model.predict(batch)
    expected = {
        q: torch.stack([out.head(h).mean(q) for h in "ab"]) for q in ("energy", "forces")
    }
    shapes = []
    predict = model.predict
    monkeypatch.setattr(
        model,
        "predict",
        lambda *a, **k: shapes.append(k["weights"].shape) or predict(*a, **k),
    )
    found = mean_predictions(model, batch, ["energy", "forces"])
    assert shapes == [(2, 4, 3)]
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=1e-13)


def test_errors_do_not_depend_on_the_batches():
    model = make()
    graphs = [
        label(atoms, [1.0, None], [np.ones((2, 3)), None])
        for atoms in (h2(0.7), h2(0.8), h2(0.9))
    ]
    tables = [
        validate(model, validation_batches(graphs, n), ("energy", "forces")).metrics()
        for n in (1, 2, 3)
    ]
    for table in tables[1:]:
        for name in ("energy", "forces"):
            assert table["a"][name]["rmse"] == pytest.approx(
                tables[0]["a"][name]["rmse"], rel=1e-12
            )
            assert table["b"][name]["rmse"] is None


def test_forces_are_measured_under_no_grad_and_leave_nothing():
    model = make().requires_grad_(requires_grad=False)  # frozen as well
    with torch.no_grad():
        sums = validate(
            model, [join([label(h2(), [1.0, 1.0], [np.ones((2, 3))] * 2)])], ("forces",)
        )
    assert not sums.sums.requires_grad
    assert sums.metrics()["a"]["forces"]["rmse"] > 0
    assert all(p.grad is None for p in model.parameters())


def test_stress_beside_molecules():
    crystal = Atoms("H2", [[0, 0, 0], [0, 0, 0.8]], cell=[2.5, 2.6, 2.7], pbc=True)
    graphs = [
        label(crystal, [1.0, None], [None, None], stress=[np.eye(3), None]),
        label(h2(), [1.0, None], [None, None]),
    ]
    model = make()
    table = validate(model, [join(graphs)], ("energy", "stress")).metrics()
    stress = model.predict(graphs[0], ["stress"])["stress"][:3, 0].mean(0)
    expected = ((stress - torch.eye(3)) ** 2).mean().sqrt().item()
    assert table["a"]["stress"]["rmse"] == pytest.approx(expected, rel=1e-10)
    assert table["a"]["stress"]["count"] == 9
