import pytest
import torch
from torch import nn

from gnnforce.derivatives.penalties import between, gradient_penalty, parts_of_the_way
from gnnforce.errors import UserError


def critic(n_outputs: int = 3) -> nn.Module:
    layers = nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, n_outputs)
    return nn.Sequential(*layers).double()


def points(n: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    first, second = torch.randn(2, n, 4, dtype=torch.float64)
    return first, second, torch.rand(n, dtype=torch.float64)


@pytest.mark.parametrize("strategy", ["auto", "loop", "batched"])
@pytest.mark.parametrize("target", [0.0, 1.0, 2.5])
def test_linear_functions_have_known_norms(strategy, target):
    slopes = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.3, 0.4]], requires_grad=True)
    x = torch.randn(5, 2)
    got = gradient_penalty(
        lambda x: x @ slopes.T,
        x,
        x + 1,
        at=torch.rand(5),
        target=target,
        strategy=strategy,
    )
    norms = torch.tensor([5.0, 1.0, 0.5])
    torch.testing.assert_close(got.detach(), (norms - target) ** 2)
    (grad,) = torch.autograd.grad(got.sum(), slopes)
    expected = 2 * (norms - target)[:, None] * slopes.detach() / norms[:, None]
    torch.testing.assert_close(grad, expected)


def test_one_sided():
    slopes = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    x = torch.zeros(2, 2)
    options = {"at": torch.zeros(2), "one_sided": True}
    got = gradient_penalty(lambda x: x @ slopes.T, x, x, **options)
    torch.testing.assert_close(got, torch.tensor([16.0, 0.0]))


def test_quadratic_function_at_the_interpolated_points():
    first, second, t = points()
    got = gradient_penalty(lambda x: 0.5 * (x**2).sum(1), first, second, at=t, target=1.0)
    where = first + t[:, None] * (second - first)
    expected = ((where.norm(dim=1) - 1) ** 2).mean()
    torch.testing.assert_close(got, expected[None], rtol=1e-12, atol=0)


def test_against_one_backward_per_sample_and_output():
    model, (first, second, t) = critic(), points()
    got = gradient_penalty(model, first, second, at=t)
    rows = []
    for n in range(3):
        costs = []
        for s in range(len(first)):
            x = (first[s] + t[s] * (second[s] - first[s])).requires_grad_()
            (slope,) = torch.autograd.grad(model(x[None])[0, n], x, create_graph=True)
            costs.append((slope.norm() - 1) ** 2)
        rows.append(torch.stack(costs).mean())
    torch.testing.assert_close(got, torch.stack(rows), rtol=1e-12, atol=0)
    for n in range(3):  # and so are the gradients for training, output by output
        parameters = [p for p in model.parameters() if p.dim() == 2]
        ours = torch.autograd.grad(got[n], parameters, retain_graph=True)
        theirs = torch.autograd.grad(rows[n], parameters, retain_graph=True)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)
    # the wrong way, a cotangent of ones over outputs too, gives another number
    x = (first + t[:, None] * (second - first)).requires_grad_()
    (mixed,) = torch.autograd.grad(model(x).sum(), x)
    assert not torch.allclose(((mixed.norm(dim=1) - 1) ** 2).mean(), got.detach().mean())


def test_parameter_gradient_by_finite_differences():
    model, (first, second, t) = critic(1), points()
    weight = model[0].weight

    def value():
        return gradient_penalty(model, first, second, at=t)[0]

    (grad,) = torch.autograd.grad(value(), weight)
    direction = torch.randn_like(weight)
    step = 1e-5
    with torch.no_grad():
        weight += step * direction
        above = value()
        weight -= 2 * step * direction
        below = value()
    assert not above.requires_grad
    torch.testing.assert_close(
        (grad * direction).sum(), (above - below) / (2 * step), rtol=1e-6, atol=0
    )


def test_training_with_it_brings_the_norm_to_the_target():
    model, (first, second, _) = critic(1), points(32)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    generator = torch.Generator().manual_seed(0)
    start = gradient_penalty(model, first, second, at=generator).item()
    for _ in range(200):
        optimizer.zero_grad()
        gradient_penalty(model, first, second, at=generator).sum().backward()
        optimizer.step()
    assert gradient_penalty(model, first, second, at=generator).item() < 0.02 * start


def test_a_norm_of_zero_has_a_finite_gradient():
    w = torch.zeros(2, requires_grad=True)
    x = torch.ones(3, 2)
    got = gradient_penalty(lambda x: x @ w, x, x, at=torch.zeros(3))
    assert got.tolist() == [1.0]
    assert torch.autograd.grad(got.sum(), w)[0].tolist() == [0.0, 0.0]


def test_the_points_are_not_trained_and_grad_is_not_touched():
    model, (first, second, t) = critic(), points()
    first.requires_grad_()
    got = gradient_penalty(model, first, second, at=t)
    assert torch.autograd.grad(got.sum(), first, allow_unused=True) == (None,)
    assert all(p.grad is None for p in model.parameters())


def test_inference_mode_and_any_shape_of_points():
    model, (first, second, t) = critic(), points()
    expected = gradient_penalty(model, first, second, at=t).detach()
    with torch.inference_mode():
        got = gradient_penalty(
            lambda x: model(x.flatten(1)),
            first.view(6, 2, 2) * 1,
            second.view(6, 2, 2) * 1,
            at=t,
        )
    assert not got.requires_grad
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_draws():
    like = torch.zeros(1, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    before = torch.get_rng_state()
    drawn = parts_of_the_way(1000, generator, like)
    assert torch.equal(torch.get_rng_state(), before)
    assert 0 <= float(drawn.min()) < 0.01
    assert 0.99 < float(drawn.max()) < 1
    assert not torch.equal(drawn, parts_of_the_way(1000, generator, like))
    assert between(like[None], like[None] + 1, generator).dtype == torch.float32


def test_refused():
    x, t = torch.zeros(3, 2), torch.zeros(3)
    for error, arguments, options in (
        (r"\(3, 2\) and \(2, 2\)", (torch.sum, x, x[:2]), {"at": t}),
        ("at least one sample", (torch.sum, x[:0], x[:0]), {"at": t[:0]}),
        (
            r"shape \(3,\), one part .* not \(3, 1\)",
            (torch.sum, x, x),
            {"at": t[:, None]},
        ),
        (r"not 0.5", (torch.sum, x, x), {"at": 0.5}),
        (r"into \(3,\) or \(3, n_outputs\), not \(\)", (torch.sum, x, x), {"at": t}),
        ("depend on the points", (lambda x: x.detach().sum(1), x, x), {"at": t}),
        (">= 0, not -1", (lambda x: x.sum(1), x, x), {"at": t, "target": -1.0}),
    ):
        with pytest.raises(UserError, match=error):
            gradient_penalty(*arguments, **options)
