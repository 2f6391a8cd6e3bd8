import math

import pytest
import torch
from torch import nn

from gnnforce.errors import ConfigError, GradientError
from gnnforce.training.clipping import (
    check_clipping,
    clip_gradient_groups,
    parameter_groups,
)
from gnnforce.training.config import load_config
from gnnforce.training.fit import train
from gnnforce.training.module import TrainingError

from .helpers import h2_frames, h2_graphs, lengths, make_module, settings, write_frames
from .test_module import fit


def network(dtype=torch.float64) -> nn.Module:
    torch.manual_seed(0)
    net = nn.ModuleDict(
        {
            "backbone": nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)),
            "readouts": nn.ModuleDict({"pbe": nn.Linear(4, 1), "ccsd": nn.Linear(4, 1)}),
        }
    ).to(dtype)
    for p in net.parameters():
        p.grad = torch.randn_like(p) * 10
    return net


def norm(parameters) -> float:
    return math.sqrt(sum(float((p.grad**2).sum()) for p in parameters))


def grads(net):
    return {name: p.grad.clone() for name, p in net.named_parameters()}


@pytest.mark.parametrize(
    ("backbone", "readouts"), [("backbone", "readouts"), ("backbone.*", "*readouts*")]
)
def test_each_group_gets_its_own_norm(backbone, readouts):
    net = network()
    before = grads(net)
    expected = {
        backbone: norm(net["backbone"].parameters()),
        readouts: norm(net["readouts"].parameters()),
    }
    got = clip_gradient_groups(net.named_parameters(), {backbone: 1.0, readouts: 0.1})
    assert got == pytest.approx(expected, rel=1e-12)
    assert norm(net["backbone"].parameters()) == pytest.approx(1.0, rel=1e-12)
    assert norm(net["readouts"].parameters()) == pytest.approx(0.1, rel=1e-12)
    for name, p in net.named_parameters():  # the direction stays
        key, limit = (backbone, 1.0) if name[:8] == "backbone" else (readouts, 0.1)
        torch.testing.assert_close(p.grad, before[name] * limit / expected[key])


def test_one_group_equals_torch():
    net, other = network(), network()
    norms = clip_gradient_groups(net.named_parameters(), {"*": 0.5})
    total = nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    assert norms["*"] == pytest.approx(float(total), rel=1e-12)
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-6, atol=0)


def test_what_is_small_or_not_named_stays():
    net = network()
    before = grads(net)
    clip_gradient_groups(net.named_parameters(), {"backbone": 1e6, "readouts.pbe": 0.1})
    for name, p in net.named_parameters():
        assert torch.equal(p.grad, before[name]) != name.startswith("readouts.pbe")
    said = []
    check_clipping(net, {"backbone": 1e6, "readouts.pbe": 0.1}, said.append)
    (line,) = said
    assert "no limit for 2 parameters (readouts.ccsd.weight, ...): they are not" in line
    for limits in ({"*": 1.0}, 0.1, None):
        check_clipping(net, limits, said.append)
    assert len(said) == 1
    with pytest.raises(ConfigError, match="no parameter fits 'heads'"):
        check_clipping(net, {"heads": 1.0}, said.append)


def test_without_a_gradient():
    net = network()
    net["backbone"][0].weight.grad = None
    for p in net["readouts"].parameters():
        p.grad = None
    norms = clip_gradient_groups(
        net.named_parameters(), {"backbone": 1.0, "readouts": 1.0}
    )
    assert norms["readouts"] == 0.0
    assert net["backbone"][0].weight.grad is None
    net["backbone"][0].weight.grad = torch.zeros(4, 3, dtype=torch.float64)
    assert norm(net["backbone"].parameters()) == pytest.approx(1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_refused_and_nothing_changes(value):
    net = network()
    net["readouts"]["ccsd"].bias.grad[0] = value
    before = grads(net)
    with pytest.raises(GradientError, match=r"parameters 'readouts\.\*' is not finite"):
        clip_gradient_groups(net.named_parameters(), {"backbone": 1.0, "readouts.*": 0.1})
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, before[name], rtol=0, atol=0, equal_nan=True)


def test_float32_norm_of_large_numbers_is_refused_not_silently_zero():
    net = network(torch.float32)
    for p in net.parameters():
        p.grad.fill_(3e38)
    with pytest.raises(GradientError):
        clip_gradient_groups(net.named_parameters(), {"*": 1.0})


def test_refused():
    net = network()
    for error, limits in (
        (r"no parameter fits 'backbon'. Did you mean 'backbone'\?", {"backbon": 1.0}),
        (r"'readouts.pbo.\*'. Did you mean 'readouts.pbe'", {"readouts.pbo.*": 1.0}),
        (
            r"'backbone' and '\*.weight' both stand for the parameter backbone.0.weight",
            {"backbone": 1.0, "*.weight": 1.0},
        ),
        ("limit of 'backbone' must be a number above 0, not 0", {"backbone": 0.0}),
        ("not nan", {"backbone": math.nan}),
        ("not inf", {"backbone": math.inf}),
    ):
        before = grads(net)
        with pytest.raises(ConfigError, match=error):
            clip_gradient_groups(net.named_parameters(), limits)
        assert all(
            torch.equal(p.grad, before[name]) for name, p in net.named_parameters()
        )


def test_groups():
    net = network()
    groups = parameter_groups(net.named_parameters(), ["backbone.0", "readouts"])
    assert [len(group) for group in groups.values()] == [2, 4]


# In training -----------------------------------------------------------------------------


GROUPS = {"backbone": 0.01, "readouts.*": 0.002}


def test_a_step_takes_the_clipped_groups(tmp_path):
    config = settings(training={"epochs": 1, "batch_size": 2, "gradient_clip": GROUPS})
    module = make_module(config, h2_graphs([0.7, 0.9]))
    fit(module, tmp_path)
    assert norm(module.model.backbone.parameters()) == pytest.approx(0.01, rel=1e-9)
    assert norm(module.model.readouts.parameters()) == pytest.approx(0.002, rel=1e-9)


def test_a_run_says_what_has_no_limit_and_refuses_unknown_groups(tmp_path):
    data = write_frames(tmp_path / "h2.xyz", h2_frames(lengths(6)))

    def run(limits):
        config = settings(
            {"train": str(data), "valid": 0.3},
            training={"epochs": 1, "gradient_clip": limits},
            top={"output": str(tmp_path / "run")},
        )
        return train(config, progress=False)

    result = run({"backbone": 1.0})
    assert "gradient_clip names no limit for" in (result.folder / "train.log").read_text()
    saved = load_config(result.folder / "config.yaml")
    assert saved.training.gradient_clip == {"backbone": 1.0}
    with pytest.raises(
        ConfigError, match=r"no parameter fits 'readout'\. Did you mean 'rea"
    ):
        run({"readout": 1.0})
    with pytest.raises(ConfigError, match="both stand for the parameter readouts"):
        run({"readouts": 1.0, "*": 1.0})
    assert (result.folder / "model.pt").is_file()  # a mistake costs no earlier run


def test_a_gradient_that_is_not_finite_ends_training_and_spoils_no_weight(tmp_path):
    config = settings(training={"epochs": 1, "batch_size": 2, "gradient_clip": GROUPS})
    graphs = h2_graphs([0.7, 0.9])
    graphs[0]["forces_labels"] += math.inf
    module = make_module(config, graphs)
    with pytest.raises(TrainingError, match="gradient is not finite at step 0"):
        fit(module, tmp_path)
    assert all(bool(torch.isfinite(p).all()) for p in module.model.parameters())


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"backbone": -1.0}, "gradient_clip.backbone should be greater than 0, not -1.0"),
        ({"backbone": "much"}, "gradient_clip.backbone should be a number, not 'much'"),
        (-1.0, "training.gradient_clip should be greater than 0, not -1.0"),
        ({"backbone": math.inf}, "gradient_clip.backbone should be a finite number"),
    ],
)
def test_limits_that_are_no_limits(value, error):
    with pytest.raises(ConfigError, match=error):
        settings(training={"gradient_clip": value})
