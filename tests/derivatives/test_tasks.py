import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gnnforce.derivatives import tasks
from gnnforce.derivatives.tasks import (
    AGGREGATORS,
    backward_tasks,
    combine,
    task_gradients,
    torchjd_aggregator,
    with_seed,
)
from gnnforce.errors import ConfigError, GradientError, UserError


class ThreeTasks:
    """A shared layer, a head for each of three tasks, and losses on slopes as well."""

    def __init__(self, dtype=torch.float64):
        self.shared_layer = nn.Linear(3, 4).to(dtype)
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(3)).to(dtype)
        self.x = torch.randn(5, 3, dtype=dtype)
        self.shared = list(self.shared_layer.parameters())
        self.own = list(self.heads.parameters())

    def losses(self, slopes: bool = True) -> torch.Tensor:
        x = self.x.clone().requires_grad_()
        hidden = torch.tanh(self.shared_layer(x))
        values = []
        for number, head in enumerate(self.heads):
            y = head(hidden)
            loss = ((y - number) ** 2).mean()
            if slopes:
                (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
                loss = loss + ((slope - 0.1 * number) ** 2).mean()
            values.append(loss)
        return torch.stack(values)

    def grads(self, loss):
        return torch.autograd.grad(
            loss, [*self.shared, *self.own], retain_graph=True, materialize_grads=True
        )


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_rows_equal_a_gradient_per_task(slopes, chunk):
    net = ThreeTasks()
    losses = net.losses(slopes)
    got = task_gradients(losses, net.shared, net.own, chunk=chunk, keep=True)
    rows = [net.grads(loss) for loss in losses]
    n = len(net.shared)
    for place, row in enumerate(got.shared):
        expected = torch.stack([one[place] for one in rows])
        torch.testing.assert_close(row, expected, rtol=1e-12, atol=1e-14)
    for place, gradient in enumerate(got.own):
        task = place // 2
        torch.testing.assert_close(
            gradient, rows[task][n + place], rtol=1e-12, atol=1e-14
        )
    assert all(p.grad is None for p in [*net.shared, *net.own])


@pytest.mark.parametrize("weights", [None, [1.0, 0.25, 3.0], torch.tensor([0.0, 2.0, 1])])
def test_fixed_weights_are_the_backward_of_the_weighted_sum(weights):
    net = ThreeTasks()
    factors = torch.ones(3) if weights is None else torch.as_tensor(weights)
    expected = net.grads((net.losses() * factors.double()).sum())
    backward_tasks(net.losses(), net.shared, net.own, weights=weights)
    for p, wanted in zip([*net.shared, *net.own], expected, strict=True):
        torch.testing.assert_close(p.grad, wanted, rtol=1e-12, atol=1e-14)
    backward_tasks(net.losses(), net.shared, net.own, weights=weights)  # adds
    for p, wanted in zip([*net.shared, *net.own], expected, strict=True):
        torch.testing.assert_close(p.grad, 2 * wanted, rtol=1e-12, atol=1e-14)


def test_the_sum_as_an_aggregator_is_the_sum():
    net = ThreeTasks()
    weights = [1.0, 0.25, 3.0]
    expected = net.grads((net.losses() * torch.tensor(weights).double()).sum())
    backward_tasks(
        net.losses(), net.shared, net.own, lambda rows: rows.sum(0), weights=weights
    )
    for p, wanted in zip([*net.shared, *net.own], expected, strict=True):
        torch.testing.assert_close(p.grad, wanted, rtol=1e-12, atol=1e-14)


def test_an_aggregator_sees_the_shared_gradients_and_leaves_the_own():
    net = ThreeTasks()
    losses = net.losses()
    rows = [net.grads(loss) for loss in losses]
    seen = []

    def last(matrix):
        seen.append(matrix)
        return matrix[-1]

    backward_tasks(losses, net.shared, net.own, last)
    flat = torch.stack([torch.cat([g.flatten() for g in row[:2]]) for row in rows])
    torch.testing.assert_close(seen[0], flat, rtol=1e-12, atol=1e-14)
    for place, p in enumerate(net.shared):
        torch.testing.assert_close(p.grad, rows[2][place], rtol=1e-12, atol=1e-14)
    for place, p in enumerate(net.own):
        wanted = rows[place // 2][2 + place]
        torch.testing.assert_close(p.grad, wanted, rtol=1e-12, atol=1e-14)


def test_heads_side_by_side_in_one_tensor_get_their_own_rows():
    shared = torch.tensor([1.0, 2.0], requires_grad=True)
    stacked = torch.tensor([[1.0, 0.5], [3.0, -1.0]], requires_grad=True)
    losses = (stacked * shared).sum(dim=1) ** 2
    (expected,) = torch.autograd.grad(losses.sum(), stacked, retain_graph=True)
    backward_tasks(losses, [shared], [stacked], lambda rows: rows.mean(0))
    assert torch.equal(stacked.grad, expected)


def test_a_task_without_a_gradient_has_no_say():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    losses = torch.stack([w.sum(), (w * 0).sum(), w.prod()])
    seen = []

    def first(matrix):
        seen.append(matrix.shape)
        return matrix.min(dim=0).values

    backward_tasks(losses, [w], aggregator=first)
    assert seen == [(2, 2)]
    assert w.grad.tolist() == [1.0, 1.0]
    w.grad = None
    backward_tasks((w * 0)[:1], [w], aggregator=first)  # no task at all
    assert w.grad.tolist() == [0.0, 0.0]


def test_a_gradient_that_is_not_finite_is_refused_before_anything_is_written():
    w = torch.tensor([1.0, 0.0], requires_grad=True)
    losses = torch.stack([w.sum(), torch.sqrt(w).sum()])
    with pytest.raises(GradientError, match="nothing was combined or written"):
        backward_tasks(losses, [w], aggregator=lambda rows: rows.sum(0))
    assert w.grad is None
    shared = torch.ones(2, requires_grad=True)
    losses = torch.stack([shared.sum(), (shared.detach() * torch.sqrt(w)).sum()])
    with pytest.raises(GradientError, match="gradient of a task is not finite"):
        backward_tasks(losses, [shared], [w], lambda rows: rows.sum(0))
    assert shared.grad is None
    with pytest.raises(GradientError):
        backward_tasks(shared[None].sum(1), [shared], aggregator=lambda rows: rows[0] / 0)


def test_refused():
    w = torch.ones(2, requires_grad=True)
    frozen = torch.ones(2)
    losses = w * 2
    for error, arguments, options in (
        (r"not \(1, 2\); use torch.stack", (losses[None], [w]), {}),
        (r"torch.no_grad\(\)", (losses.detach(), [w]), {}),
        (
            r"own parameter 0 of shape \(2,\) does not require",
            (losses, [w], [frozen]),
            {},
        ),
        ("stands twice", (losses, [w], [w]), {}),
        ("stands twice", (losses, [w, w]), {}),
        ("one weight for each of the 2 losses", (losses, [w]), {"weights": [1.0]}),
        ("at least 1, not 0", (losses, [w], [], lambda rows: rows[0]), {"chunk": 0}),
        ("not negative", (losses, [w]), {"weights": [1.0, -1.0]}),
        ("must be finite", (losses, [w]), {"weights": [1.0, float("nan")]}),
        (
            r"into a vector \(2,\), but it returned \(\)",
            (losses, [w], [], lambda rows: rows.sum()),
            {},
        ),
        ("returned None", (losses, [w], [], lambda _: None), {}),
    ):
        with pytest.raises(UserError, match=error):
            backward_tasks(*arguments, **options, keep=True)
    assert w.grad is None


def test_unknown_aggregator():
    with pytest.raises(ConfigError, match=r"'upgrat'; there are .*Did you mean 'upgrad'"):
        torchjd_aggregator("upgrat")


@pytest.mark.parametrize("name", AGGREGATORS)
def test_without_torchjd_the_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd", None)
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnforce\[multitask\]'") as info:
        torchjd_aggregator(name)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("kind", [ImportError, OSError])
def test_an_aggregator_that_lacks_a_package_of_its_own(monkeypatch, kind):
    def lacking():
        raise kind("needs\n quadprog")

    module = SimpleNamespace(UPGrad=lacking)
    monkeypatch.setattr(tasks.importlib, "import_module", lambda _: module)
    with pytest.raises(ConfigError, match=r"\(needs quadprog\); pip install"):
        torchjd_aggregator("upgrad")


def conflicting() -> torch.Tensor:
    return torch.tensor([[-4.0, 1.0, 1.0], [6.0, 1.0, 1.0]], dtype=torch.float64)


def test_upgrad_conflicts_with_no_task():
    pytest.importorskip("torchjd")
    rows = conflicting()
    got = torchjd_aggregator("upgrad")(rows)
    # each row minus what conflicts with the other, and their mean; by hand
    inner, a, b = rows[0] @ rows[1], rows[0] @ rows[0], rows[1] @ rows[1]
    first, second = rows[0] - inner / b * rows[1], rows[1] - inner / a * rows[0]
    torch.testing.assert_close(got, (first + second) / 2, rtol=1e-3, atol=1e-3)
    assert bool((rows @ got >= -1e-3).all())


def test_pcgrad_of_two_tasks_projects_each_on_the_normal_plane_of_the_other():
    pytest.importorskip("torchjd")
    rows = conflicting()
    inner, a, b = rows[0] @ rows[1], rows[0] @ rows[0], rows[1] @ rows[1]
    expected = rows[0] - inner / b * rows[1] + rows[1] - inner / a * rows[0]
    got = torchjd_aggregator("pcgrad")(rows)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_mgda_is_the_shortest_convex_combination():
    pytest.importorskip("torchjd")
    rows = conflicting()
    shares = torch.linspace(0, 1, 100001, dtype=torch.float64)[:, None]
    line = shares * rows[0] + (1 - shares) * rows[1]
    expected = line[line.norm(dim=1).argmin()]
    got = torchjd_aggregator("mgda")(rows)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_torchjd_end_to_end(name):
    pytest.importorskip("torchjd")
    net = ThreeTasks()
    losses = net.losses()
    rows = [net.grads(loss) for loss in losses]
    matrix = torch.stack([torch.cat([g.flatten() for g in row[:2]]) for row in rows])
    aggregator = with_seed(torchjd_aggregator(name), 5)
    expected = aggregator(matrix)
    backward_tasks(losses, net.shared, net.own, aggregator)
    got = torch.cat([p.grad.flatten() for p in net.shared])
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def test_seeded_draws_leave_the_generator_alone():
    draw = with_seed(lambda rows: torch.rand(rows.shape[1]), 3)
    before = torch.get_rng_state()
    first = draw(torch.ones(2, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, draw(torch.ones(2, 4)))
    other = with_seed(lambda rows: torch.rand(rows.shape[1]), 4)
    assert not torch.equal(first, other(torch.ones(2, 4)))


def test_combine_nothing():
    assert combine([], lambda rows: rows.sum(0)) == []
