from itertools import product

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.training.batches import join
from gnnforce.training.members import Draws
from gnnforce.training.objective import Objective, label_counts
from gnnforce.training.sections import WeightsConfig

from .helpers import h2, h2_graphs, label, make_model, settings

BOTH = ("energy", "forces")
EVEN = WeightsConfig()


def setup(members=2, *, quantities=BOTH, heads=None, **training):
    heads = heads or {"energy": members}
    config = settings(
        {"heads": {name: {} for name in heads}},
        model={
            "heads": {name: {"members": n, "hidden": [4]} for name, n in heads.items()}
        },
        training={"bootstrap": "none"} | training,
    )
    model = make_model(config)
    return model, Objective(model.outputs, config.training, config.seed, quantities)


def gradient(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    return torch.cat(
        [
            torch.zeros(p.numel()).double() if p.grad is None else p.grad.flatten()
            for p in model.parameters()
        ]
    )


def test_loss_of_all_members_is_the_documented_mean():
    graphs = h2_graphs([0.7, 0.9])
    model, objective = setup(members=3, derivative_members="all", loss="mse")
    batch = join(graphs)
    losses = objective(model, batch, 0, WeightsConfig(energy=2.0, forces=3.0))
    out = model.predict(batch)
    energy = ((out["energy"] - batch["energy_labels"].T) / 2) ** 2
    forces = (out["forces"] - batch["forces_labels"][:, 0]) ** 2
    assert losses.energy.item() == pytest.approx(energy.mean().item(), rel=1e-12)
    assert losses.forces.item() == pytest.approx(forces.mean().item(), rel=1e-12)
    expected = 2 * energy.mean() + 3 * forces.mean()
    assert losses.total.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("bootstrap", ["none", "poisson"])
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_expectation_over_draws_is_the_loss_of_all_members(bootstrap, loss, monkeypatch):
    """Exact enumeration: 2 members x 2 graphs of different weight and size."""
    third = Atoms("H3", [[0, 0, 0], [0, 0, 0.8], [0, 0.9, 0]])
    forces = np.ones((3, 3))
    graphs = [
        label(h2(), [-4.0], [forces[:2]], frame_id=5),  # bootstrap weights 2 and 1
        label(third, [1.0], [forces], frame_id=10, weight=2.0),  # 0 and 2
    ]
    batch = join(graphs)
    options = {"bootstrap": bootstrap, "loss": loss}
    model, everything = setup(derivative_members="all", **options)
    full = everything(model, batch, 0, EVEN)
    full_gradient = gradient(model, full.total)
    _, sampled = setup(**options)
    _, shares = sampled._coefficients(batch, list(BOTH), EVEN)
    probability = shares / shares.sum(dim=0)
    mean, total = torch.zeros_like(full_gradient), 0.0
    for drawn in product(range(2), repeat=2):
        p = probability[drawn[0], 0] * probability[drawn[1], 1]
        if p == 0:
            continue
        outputs = torch.tensor([drawn])
        factors = 1 / probability.gather(0, outputs)
        draws = Draws(outputs, factors)
        monkeypatch.setattr(sampled, "_draw", lambda *_, draws=draws: draws)
        losses = sampled(model, batch, 0, EVEN)
        mean += p * gradient(model, losses.total)
        total += p * losses.forces.item()
    assert torch.allclose(mean, full_gradient, rtol=1e-10, atol=1e-13)
    assert total == pytest.approx(full.forces.item(), rel=1e-10)
    assert full_gradient.abs().max() > 1e-4


def test_drawn_steps_average_to_the_loss_of_all_members():
    batch = join(h2_graphs([0.7, 0.9]))
    options = {"bootstrap": "poisson"}
    model, everything = setup(members=3, derivative_members="all", **options)
    full = everything(model, batch, 0, EVEN).forces.item()
    _, sampled = setup(members=3, **options)
    found = [sampled(model, batch, step, EVEN).forces.item() for step in range(400)]
    error = np.std(found) / 20
    assert error > 0
    assert abs(np.mean(found) - full) < 4 * error


def test_two_draws_vary_less_than_one():
    batch = join(h2_graphs([0.7, 0.9]))
    spread = []
    for n in (1, 2):
        model, objective = setup(members=4, derivative_members=n)
        values = [objective(model, batch, s, EVEN).forces.item() for s in range(60)]
        spread.append(np.std(values))
    assert spread[1] < 0.8 * spread[0]


def test_more_draws_than_outputs_are_all_outputs():
    batch = join(h2_graphs([0.7, 0.9]))
    model, objective = setup(members=2, derivative_members=5)
    _, everything = setup(members=2, derivative_members="all")
    one, other = (f(model, batch, 0, EVEN).forces for f in (objective, everything))
    assert one == other


def test_one_pull_back_a_step(monkeypatch):
    model, objective = setup(members=8)
    shapes = []
    predict = model.predict

    def watched(*args, **kwargs):
        shapes.append(kwargs["weights"].shape)
        return predict(*args, **kwargs)

    monkeypatch.setattr(model, "predict", watched)
    objective(model, join(h2_graphs([0.7, 0.9, 1.0])), 0, EVEN)
    assert shapes == [(1, 8, 3)]


@pytest.mark.parametrize("members", ["all", 1])
def test_a_head_without_labels_gets_no_gradient(members):
    """Case C45: exactly zero, and changing its readout changes no other energy."""
    forces = np.ones((2, 3))
    graphs = [
        label(h2(0.8), [1.0, None, None], [forces, None, None], frame_id=0),
        label(h2(0.9), [None, None, 2.0], [None, None, forces], frame_id=1),
    ]
    model, objective = setup(heads={"a": 2, "b": 2, "c": 1}, derivative_members=members)
    objective(model, join(graphs), 0, EVEN).total.backward()
    (perceptron,) = model.readouts.perceptrons
    for parameter in perceptron.parameters():
        assert parameter.shape[0] == 5  # members of all heads
        assert torch.all(parameter.grad[2:4] == 0)
    assert all(
        any(p.grad[n].abs().max() > 0 for p in perceptron.parameters()) for n in (0, 1, 4)
    )
    before = model.predict(join(graphs))["energy"]
    with torch.no_grad():
        for parameter in perceptron.parameters():
            parameter[4:] += 1.0
    after = model.predict(join(graphs))["energy"]
    assert torch.equal(after[:4], before[:4])
    assert not torch.equal(after[4:], before[4:])


def test_masked_atoms_and_members_without_the_frame_do_not_matter():
    graphs = h2_graphs([0.7, 0.9])
    graphs[0]["forces_mask"][1] = False
    model, objective = setup(derivative_members="all", bootstrap="poisson")
    batch = join(graphs)
    reference = objective(model, batch, 0, EVEN)
    batch["forces_labels"][1] = 1e6
    assert objective(model, batch, 0, EVEN).forces == reference.forces
    batch["forces_labels"][0] = 1e6
    assert objective(model, batch, 0, EVEN).forces != reference.forces


def test_bootstrap_leaves_a_single_member_all_frames():
    batch = join(h2_graphs([0.7, 0.75, 0.8, 0.9]))
    model, objective = setup(members=1, bootstrap="poisson")
    _, plain = setup(members=1, bootstrap="none")
    assert objective(model, batch, 0, EVEN).energy == plain(model, batch, 0, EVEN).energy


def test_members_see_different_frames():
    graphs = h2_graphs(np.linspace(0.7, 1.0, 12).tolist())
    _, objective = setup(members=2, bootstrap="poisson")
    coefficients, shares = objective._coefficients(join(graphs), list(BOTH), EVEN)
    seen = coefficients["energy"] > 0
    assert 0 < seen[0].sum() < 12
    assert not torch.equal(seen[0], seen[1])
    # derivatives are drawn among members that see the frame
    assert torch.equal(shares > 0, seen)


def test_stress_in_a_batch_with_molecules():
    rng = np.random.default_rng(0)
    crystal = Atoms("H2", [[0, 0, 0], [0, 0, 0.8]], cell=[2.5, 2.6, 2.7], pbc=True)
    stress = rng.normal(size=(3, 3))
    stress += stress.T
    graphs = [
        label(crystal, [1.0], [np.ones((2, 3))], stress=[stress]),
        label(h2(), [1.0], [np.ones((2, 3))], frame_id=1),
    ]
    model, objective = setup(
        derivative_members="all", quantities=(*BOTH, "stress"), loss="mse"
    )
    losses = objective(model, join(graphs), 0, EVEN)
    out = model.predict(graphs[0], ["stress"])["stress"][:, 0]
    expected = ((out - torch.tensor(stress)) ** 2).mean()
    assert losses.stress.item() == pytest.approx(expected.item(), rel=1e-12)
    assert label_counts(join(graphs), "stress").tolist() == [[9.0, 0.0]]


def test_without_derivative_labels_nothing_is_differentiated(monkeypatch):
    graphs = [label(h2(), [1.0], [None])]
    model, objective = setup(quantities=("energy",))
    called = []
    predict = model.predict
    monkeypatch.setattr(
        model, "predict", lambda *a, **k: called.append(a[1]) or predict(*a, **k)
    )
    losses = objective(model, join(graphs), 0, EVEN)
    assert called == [["energy"]]
    assert losses.forces == 0
    assert gradient(model, losses.total).abs().max() > 0


@pytest.mark.parametrize(
    "graphs",
    [
        [label(h2()[:1], [0.0], [np.zeros((1, 3))])],  # a lone atom: no edges
        [label(h2(), [0.0], [np.zeros((2, 3))])] * 2,
        [label(h2(20.0), [0.0], [np.zeros((2, 3))])],
        [label(h2(), [0.0], [np.zeros((2, 3))], weight=0.0)],
    ],
    ids=["lone", "identical", "far", "weight 0"],
)
def test_exact_zeros_stay_finite(graphs):
    for loss in ("mse", "huber"):
        model, objective = setup(loss=loss, quantities=(*BOTH, "stress"))
        losses = objective(model, join(graphs), 0, EVEN)
        assert torch.isfinite(torch.stack(list(losses))).all()
        if losses.total.requires_grad:
            assert torch.isfinite(gradient(model, losses.total)).all()


def test_zero_error_has_zero_gradient():
    """Labels equal to the predictions: loss and gradient are exactly zero."""
    model, objective = setup(members=1)
    graph = h2_graphs([0.8])[0]
    out = model.predict(graph)
    graph["energy_labels"] = out["energy"].T.clone()
    graph["forces_labels"] = out["forces"].transpose(0, 1).clone()
    losses = objective(model, join([graph]), 0, EVEN)
    assert losses.total < 1e-28
    assert gradient(model, losses.total).abs().max() < 1e-13
