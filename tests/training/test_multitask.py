"""Heads as tasks: their losses and their gradients."""

import math

import pytest
import torch

from gnnforce.errors import ConfigError
from gnnforce.graph.batch import batch as join_graphs
from gnnforce.training import multitask
from gnnforce.training.batches import join
from gnnforce.training.callbacks import criterion
from gnnforce.training.module import TrainingError
from gnnforce.training.multitask import HeadTasks, check_multitask, order_seed
from gnnforce.training.objective import Objective
from gnnforce.training.sections import WeightsConfig

from .helpers import (
    h2,
    label,
    lengths,
    make_model,
    morse,
    settings,
)
from .test_module import fit, make_module

EVEN = WeightsConfig()
HEADS = {"pbe": {"members": 2, "hidden": [4]}, "ccsd": {"members": 2, "hidden": [4]}}


def two_heads(**training):
    options = {"derivative_members": "all", "bootstrap": "none"} | training
    data = {"heads": {name: {} for name in HEADS}}
    return settings(data, model={"heads": HEADS}, training=options)


def graphs(both: int = 2, only_first: int = 1):
    """H2 molecules; the second head has half the energy, where it has a label at all."""
    result = []
    for number, length in enumerate(lengths(both + only_first)):
        energy, force = morse(length)
        forces = torch.tensor([[0, 0, -force], [0, 0, force]]).numpy()
        second = number < both
        result.append(
            label(
                h2(length),
                [energy, 0.5 * energy if second else None],
                [forces, 0.5 * forces if second else None],
                frame_id=number,
            )
        )
    return result


def setup(config):
    model = make_model(config)
    quantities = ("energy", "forces")
    return model, Objective(model.outputs, config.training, config.seed, quantities)


def grads(model, loss):
    parameters = list(model.parameters())
    return torch.autograd.grad(
        loss, parameters, retain_graph=True, materialize_grads=True
    )


def without(frames, head: int):
    """The same frames without the labels of a head."""
    whole = join([graph.clone() for graph in frames])
    for name in ("energy_mask", "forces_mask", "stress_mask"):
        whole[name][:, head] = False
    return whole


def use(monkeypatch, aggregator):
    """Put a function in the place of TorchJD."""
    monkeypatch.setattr(multitask, "torchjd_aggregator", lambda _: aggregator)


@pytest.mark.parametrize("draws", [1, 3, "all"])
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_shares_of_heads_are_their_losses_alone(draws, loss):
    model, objective = setup(two_heads(loss=loss, derivative_members=draws))
    frames = graphs()
    losses, shares = objective.by_head(model, join(frames), 0, EVEN)
    assert shares.shape == (2,)
    assert float(shares.detach().min()) >= 0
    torch.testing.assert_close(shares.sum(), losses.total, rtol=1e-12, atol=0)
    plain = objective(model, join(frames), 0, EVEN)
    for one, other in zip(losses, plain, strict=True):
        assert torch.equal(one, other)
    if draws == "all":  # else other outputs are drawn when a head is missing
        for head in range(2):
            alone = objective(model, without(frames, 1 - head), 0, EVEN).total
            torch.testing.assert_close(shares[head], alone, rtol=1e-12, atol=0)
            for a, b in zip(grads(model, shares[head]), grads(model, alone), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_a_head_without_labels_in_the_batch_is_exactly_zero():
    model, objective = setup(two_heads())
    _, shares = objective.by_head(model, join(graphs(0, 2)), 0, EVEN)
    assert shares[0] > 0
    assert shares[1] == 0
    assert all(bool((grad == 0).all()) for grad in grads(model, shares[1]))


def test_weights_of_heads_multiply_their_losses():
    given = {"ccsd": 3.0, "pbe": 0.25}
    frames = join(graphs())
    model, objective = setup(two_heads())
    _, weighed = setup(two_heads(multitask={"weights": given}))
    _, shares = objective.by_head(model, frames, 0, EVEN)
    expected = 0.25 * shares[0] + 3.0 * shares[1]
    got = weighed(model, frames, 0, EVEN).total
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
    for a, b in zip(grads(model, got), grads(model, expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_draws_follow_the_weights_and_stay_unbiased():
    """A heavy head is drawn more often, and the mean over many draws is the whole loss."""
    frames = join(graphs())
    options = {"multitask": {"weights": {"ccsd": 3.0}}, "loss": "mse"}
    model, every = setup(two_heads(**options))
    _, some = setup(two_heads(derivative_members=1, **options))
    expected = every(model, frames, 0, EVEN).forces.item()
    with torch.no_grad():
        values = [some(model, frames, step, EVEN).forces.item() for step in range(400)]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values)) / len(values)
    assert abs(mean - expected) < 4 * spread


def test_the_sum_as_an_aggregator_is_the_plain_backward(monkeypatch):
    use(monkeypatch, lambda rows: rows.sum(0))
    model, objective = setup(two_heads())
    expected = grads(model, objective(model, join(graphs()), 0, EVEN).total)
    tasks = HeadTasks(model, "upgrad", seed=0)
    _, tasks.losses = objective.by_head(model, join(graphs()), 0, EVEN)
    tasks.backward(0)
    for p, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, wanted, rtol=1e-11, atol=1e-14)


def test_only_the_backbone_is_combined(monkeypatch):
    seen = []

    def first(rows):
        seen.append(rows)
        return rows[0]

    use(monkeypatch, first)
    model, objective = setup(two_heads())
    _, shares = objective.by_head(model, join(graphs()), 0, EVEN)
    rows = [grads(model, share) for share in shares]
    tasks = HeadTasks(model, "upgrad", seed=0)
    tasks.losses = shares
    tasks.backward(0)
    for (name, p), a, b in zip(model.named_parameters(), *rows, strict=True):
        wanted = a if name.startswith("backbone") else a + b
        torch.testing.assert_close(p.grad, wanted, rtol=1e-12, atol=1e-14)
    assert seen[0].shape == (2, sum(p.numel() for p in model.backbone.parameters()))


def test_a_frozen_backbone_leaves_the_heads(monkeypatch):
    use(monkeypatch, lambda rows: rows.mean(0))
    model, objective = setup(two_heads())
    model.backbone.requires_grad_(requires_grad=False)
    tasks = HeadTasks(model, "upgrad", seed=0)
    _, tasks.losses = objective.by_head(model, join(graphs()), 0, EVEN)
    tasks.backward(0)
    assert all(p.grad is None for p in model.backbone.parameters())
    assert all(p.grad is not None for p in model.readouts.parameters())


def test_training_with_the_sum_as_an_aggregator_is_plain_training(monkeypatch, tmp_path):
    use(monkeypatch, lambda rows: rows.sum(0))
    runs = []
    for options in ({}, {"multitask": {"combine": "upgrad"}}):
        config = two_heads(epochs=3, derivative_members=1, **options)
        module = make_module(config, graphs(3, 2))
        fit(module, tmp_path)
        runs.append(module)
    assert runs[0].tasks is None
    assert runs[1].tasks is not None
    for a, b in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_batches_in_which_a_head_has_no_label(monkeypatch, tmp_path):
    sizes = []

    def mean(rows):
        sizes.append(len(rows))
        return rows.mean(0)

    use(monkeypatch, mean)
    options = {"multitask": {"combine": "mgda"}, "epochs": 2, "batch_size": 1}
    module = make_module(two_heads(**options), graphs(2, 2))
    fit(module, tmp_path)
    assert sorted(sizes) == [1] * 4 + [2] * 4


def test_a_gradient_that_is_not_finite_ends_the_run(monkeypatch, tmp_path):
    use(monkeypatch, lambda rows: rows[0] / 0)
    module = make_module(two_heads(multitask={"combine": "upgrad"}), graphs())
    before = [p.detach().clone() for p in module.model.parameters()]
    with pytest.raises(TrainingError, match="gradient of a head is not finite at step 0"):
        fit(module, tmp_path)
    for a, b in zip(before, module.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_best_epoch_follows_the_weights():
    entry = {"energy_per_atom": {"rmse": 0.0, "count": 1}, "stress": {"count": 0}}
    validation = {
        name: entry | {"forces": {"rmse": rmse, "count": 3}}
        for name, rmse in (("pbe", 2.0), ("ccsd", 3.0))
    }
    plain = make_module(two_heads(), graphs())
    assert criterion(validation, plain) == pytest.approx(4 + 9)
    weighed = make_module(two_heads(multitask={"weights": {"ccsd": 5.0}}), graphs())
    assert criterion(validation, weighed) == pytest.approx(4 + 5 * 9)


def test_every_step_has_draws_of_its_own(monkeypatch, tmp_path):
    drawn = []

    def draw(rows):
        drawn.append(float(torch.rand(())))
        return rows.sum(0)

    use(monkeypatch, draw)
    state = torch.get_rng_state()
    for _ in range(2):
        module = make_module(two_heads(multitask={"combine": "pcgrad"}), graphs(3, 1))
        fit(module, tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(set(drawn[:4])) == 4
    assert drawn[4:] == drawn[:4]


def test_order_seeds_differ():
    seeds = {order_seed(seed, step) for seed in range(5) for step in range(100)}
    assert len(seeds) == 500
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_options_that_cannot_work():
    for error, options in (
        (
            "weights has 'pbo', which model.heads has not. Did you mean 'pbe'",
            {"weights": {"pbo": 1.0}},
        ),
        (
            "training.multitask.weights.pbe should be greater than 0",
            {"weights": {"pbe": 0.0}},
        ),
        (
            "training.multitask.combine should be 'sum', 'upgrad', 'pcgrad' or 'mgda', not "
            "'mgd'",
            {"combine": "mgd"},
        ),
        ("unknown key training.multitask.aggregator", {"aggregator": "mgda"}),
    ):
        with pytest.raises(ConfigError, match=error):
            two_heads(multitask=options)
    with pytest.raises(ConfigError, match="only 'energy' is trained; remove it, or add"):
        settings(training={"multitask": {"combine": "upgrad"}})
    settings(training={"multitask": {"weights": {"energy": 2.0}}})


def test_several_processes_are_refused(monkeypatch):
    use(monkeypatch, lambda rows: rows[0])
    options = two_heads(multitask={"combine": "mgda"}).training
    check_multitask(options, 1)
    with pytest.raises(ConfigError, match=r"in one process; set training\.devices=1"):
        check_multitask(options, 2)
    for other in ({}, {"multitask": {"weights": {"pbe": 2.0}}}):
        check_multitask(two_heads(**other).training, 2)


def test_an_unlabeled_head_has_no_say(monkeypatch):
    sizes = []

    def count(rows):
        sizes.append(len(rows))
        return rows.sum(0)

    use(monkeypatch, count)
    model, objective = setup(two_heads())
    tasks = HeadTasks(model, "mgda", seed=0)
    _, tasks.losses = objective.by_head(model, join_graphs(graphs(0, 2)), 0, EVEN)
    tasks.backward(0)
    assert sizes == [1]
    assert any(float(p.grad.abs().max()) > 0 for p in model.backbone.parameters())
