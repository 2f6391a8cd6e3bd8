import pytest

from gnnforce.testing.benchmark_calls import predict, training_step
from gnnforce.testing.benchmark_references import Reference
from gnnforce.testing.benchmark_rows import Row
from gnnforce.testing.benchmark_setup import Setup, build

SIZES = {"n_features": 4, "n_layers": 1}


def prepared(
    n=6, *, training=False, dtype="float32", max_seconds=100.0, status="measured"
):
    model, graph = build(Setup("molecule", sizes=SIZES, dtype=dtype), n)
    rows = [
        Row("w", 1, "loop", first_seconds=1.0),
        Row("w", n, "loop", status=status),
        Row("w", n, "chain"),
    ]
    return model, graph, Reference(model, graph, rows, training, max_seconds), rows[2]


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("float64", 1e-13)])
def test_right_numbers_agree(dtype, limit):
    model, graph, reference, row = prepared(dtype=dtype)
    reference.judge(row, predict(model, graph, "batched"))
    assert row.agrees is True
    assert row.agreement["compared_outputs"] == 6
    for name in ("loop", "float64_loop"):
        assert row.agreement[f"forces_relative_from_{name}"] < limit
        assert row.agreement[f"energy_from_{name}"] < 20 * limit
    if dtype == "float32":  # the float64 loop is another computation
        assert row.agreement["forces_relative_from_float64_loop"] > 1e-9


@pytest.mark.parametrize("quantity", ["energy", "forces"])
def test_one_wrong_number_is_noticed(quantity):
    model, graph, reference, row = prepared()
    out = predict(model, graph, "loop")
    out[quantity].flatten()[3] += 0.01  # one output's, one entry
    reference.judge(row, out)
    assert row.agrees is False
    assert row.agreement[f"{quantity}_from_loop"] == pytest.approx(0.01, rel=1e-3)


def test_where_the_loop_is_slow_some_outputs_are_compared():
    model, graph, reference, row = prepared(6, max_seconds=10.0)
    assert reference.outputs == [0, 2, 5]
    out = predict(model, graph, "loop")
    reference.judge(row, out)
    assert row.agrees is True
    assert row.agreement["compared_outputs"] == 3
    out["forces"][5] *= 1.01
    reference.judge(row, out)
    assert row.agrees is False


def test_gradients_of_training_steps():
    model, graph, reference, row = prepared(training=True)
    reference.judge(row, training_step(model, graph, "batched"))
    assert row.agrees is True
    assert row.agreement["gradients_from_loop"] < 1e-5
    model.backbone.embedding.weight.grad[0, 0] *= 1.1
    reference.judge(row, predict(model, graph, "loop"))
    assert row.agrees is False


def test_without_the_loop_training_steps_are_not_compared():
    model, graph, reference, row = prepared(training=True, status="too slow")
    reference.judge(row, training_step(model, graph, "loop"))
    assert row.agrees is None
    assert row.agreement == {"not_compared": "the loop is too slow"}
