import pytest
import torch

from gnnforce.training.callbacks import Validation
from gnnforce.training.engine import pl, quiet_lightning
from gnnforce.training.module import TrainingModule
from gnnforce.training.run_files import RunFiles
from gnnforce.training.schedule import learning_rate
from gnnforce.training.session import make_trainer

from .helpers import h2_graphs, lengths, make_model, make_module, settings


def fit(module: TrainingModule, folder, callbacks=()):
    """Train with the bare loop: no files, no validation."""
    callbacks = [Validation([], 1), *callbacks]
    trainer = make_trainer(module, callbacks, RunFiles(folder))
    with quiet_lightning():
        trainer.fit(module)
    return trainer


def test_one_step_is_adamw_on_the_clipped_gradient(tmp_path):
    options = {"epochs": 1, "batch_size": 2, "gradient_clip": 0.01, "warmup_steps": 0}
    config = settings(training=options)
    module = make_module(config, h2_graphs([0.7, 0.9]))
    start = [p.detach().clone() for p in module.model.parameters()]
    fit(module, tmp_path)
    gradients = [p.grad for p in module.model.parameters() if p.grad is not None]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    assert norm == pytest.approx(0.01, rel=1e-4)
    assert module.position.step == 1
    moved = [
        not torch.equal(a, b)
        for a, b in zip(start, module.model.parameters(), strict=True)
    ]
    assert sum(moved) > len(moved) / 2
    # the first step of Adam is the learning rate, whatever the gradient
    largest = max(
        float((a - b).detach().abs().max())
        for a, b in zip(start, module.model.parameters(), strict=True)
    )
    assert largest == pytest.approx(config.training.learning_rate, rel=0.05)


def test_frozen_parameters_stay(tmp_path):
    config = settings(training={"epochs": 2})
    module = make_module(config, h2_graphs(lengths(4)))
    module.model.backbone.requires_grad_(requires_grad=False)
    frozen = [p.clone() for p in module.model.backbone.parameters()]
    heads = [p.detach().clone() for p in module.model.readouts.parameters()]
    fit(module, tmp_path)
    for before, after in zip(frozen, module.model.backbone.parameters(), strict=True):
        assert torch.equal(before, after)
    changed = [
        not torch.equal(a, b)
        for a, b in zip(heads, module.model.readouts.parameters(), strict=True)
    ]
    assert any(changed)


def test_rate_of_every_step_is_that_of_the_schedule(tmp_path):
    rates = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    config = settings(training={"epochs": 5, "warmup_steps": 4})
    fit(make_module(config, h2_graphs(lengths(4))), tmp_path, [Watch()])
    expected = [learning_rate(s, s / 10, config.training) for s in range(10)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_only_matrices_decay():
    module = make_module(settings(training={"weight_decay": 0.5}), h2_graphs([0.7]))
    groups = module.configure_optimizers().param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert all(p.dim() >= 2 for p in groups[0]["params"])
    assert all(p.dim() < 2 for p in groups[1]["params"])


def test_progress_counts_steps_or_time():
    module = make_module(settings(training={"epochs": 4}), h2_graphs(lengths(4)))
    module.position.step = 2
    assert module.progress == 0.25  # of 8
    module = make_module(settings(training={"minutes": 2}), h2_graphs([0.7]))
    module.position.seconds = 30.0
    assert module.progress == 0.25
    module.position.seconds = 1e9
    assert module.progress == 1.0


def test_the_clock_goes_on_from_what_was_spent():
    module = make_module(settings(training={"minutes": 2}), h2_graphs([0.7]))
    module.start_clock(50.0)
    assert module.position.seconds == 50.0


def test_the_average_starts_as_the_model_and_is_not_trained():
    module = make_module(settings(), h2_graphs([0.7]))
    model, average = module.model.state_dict(), module.average.state_dict()
    assert all(torch.equal(model[name], average[name]) for name in model)
    assert not any(p.requires_grad for p in module.average.parameters())
    other = make_model(settings(top={"seed": 3}))
    assert any(p.requires_grad for p in other.parameters())
