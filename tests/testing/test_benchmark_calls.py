import torch

from gnnforce.testing.benchmark_calls import (
    Call,
    call_of,
    gradients_of,
    predict,
    training_step,
)
from gnnforce.testing.benchmark_setup import Setup, build

SETUP = Setup("molecule", sizes={"n_features": 4, "n_layers": 1}, dtype="float64")


def test_a_prediction_gives_energies_and_forces_of_all():
    model, graph = build(SETUP, 3)
    out = predict(model, graph, "loop")
    assert out["energy"].shape == (3, 1)
    assert out["forces"].shape == (3, 15, 3)
    assert not out["forces"].requires_grad


def test_gradients_of_a_training_step_are_those_of_the_loss():
    """Central differences of the loss along one random direction."""
    model, graph = build(SETUP, 2)
    result = training_step(model, graph, "loop")
    assert not result["forces"].requires_grad
    gradients = gradients_of(model)
    assert set(gradients) == {name for name, _ in model.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    direction = {
        name: torch.randn(one.shape, generator=generator, dtype=one.dtype)
        for name, one in gradients.items()
    }

    def loss(step: float) -> float:
        with torch.no_grad():
            for name, one in model.named_parameters():
                one.add_(direction[name], alpha=step)
        out = model.predict(graph, ["energy", "forces"])
        with torch.no_grad():
            for name, one in model.named_parameters():
                one.sub_(direction[name], alpha=step)
        per_atom = out["energy"] / 15
        return float(out["forces"].square().mean() + per_atom.square().mean())

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    expected = sum(float((g * direction[n]).sum()) for n, g in gradients.items())
    assert abs(slope - expected) < 1e-6 * abs(expected)


def test_steps_do_not_add_up():
    model, graph = build(SETUP, 2)
    training_step(model, graph, "loop")
    first = gradients_of(model)
    training_step(model, graph, "loop")
    for name, value in gradients_of(model).items():
        torch.testing.assert_close(value, first[name])


def test_calls_are_built_from_plain_values():
    out = call_of(SETUP, Call(2, "loop"))()
    assert out["forces"].shape == (2, 15, 3)
    assert call_of(SETUP, Call(2, "loop"), small=True)()["forces"].shape == (2, 2, 3)
    trained = call_of(SETUP, Call(2, "loop", training=True))()
    torch.testing.assert_close(trained["forces"], out["forces"])
    assert trained.strategy == "loop"
