import sys
import threading

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from gnnforce.errors import ConfigError
from gnnforce.ops import scatter
from gnnforce.ops.scatter import gather, one_cotangent, scatter_sum

INDEX = torch.tensor([3, 0, 3, 1, 3])
SIZE = 6  # rows 2, 4 and 5 get nothing


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sum_by_hand(values: torch.Tensor) -> np.ndarray:
    total = np.zeros((SIZE, *values.shape[1:]))
    np.add.at(total, INDEX.numpy(), values.detach().numpy())
    return total


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 3, 2)])
def test_sum_equals_numpy(shape):
    values = rows(*shape)
    np.testing.assert_allclose(scatter_sum(values, INDEX, SIZE), sum_by_hand(values))
    with one_cotangent():
        np.testing.assert_allclose(scatter_sum(values, INDEX, SIZE), sum_by_hand(values))


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 3, 2)])
def test_gather_copies_rows(shape):
    values = rows(*shape)
    expected = values.numpy()[INDEX.numpy()]
    np.testing.assert_array_equal(gather(values, INDEX), expected)
    with one_cotangent():
        np.testing.assert_array_equal(gather(values, INDEX), expected)


@pytest.mark.usefixtures("kernel")
def test_size_is_never_guessed():
    nothing = torch.zeros(0, dtype=torch.int64)
    assert scatter_sum(rows(0, 2), nothing, 3).tolist() == [[0, 0]] * 3
    assert gather(rows(3, 2), nothing).shape == (0, 2)
    assert scatter_sum(rows(0, 2), nothing, 0).shape == (0, 2)


@pytest.mark.usefixtures("kernel")
def test_first_and_second_derivatives():
    values = rows(5, 2).requires_grad_()
    assert gradcheck(lambda x: scatter_sum(x, INDEX, SIZE) ** 3, values)
    assert gradgradcheck(lambda x: scatter_sum(x, INDEX, SIZE) ** 3, values)
    table = rows(6, 2).requires_grad_()
    assert gradcheck(lambda x: gather(x, INDEX) ** 3, table)
    assert gradgradcheck(lambda x: gather(x, INDEX) ** 3, table)


def test_derivatives_in_forward_mode():
    def total(x):
        return scatter_sum(x, INDEX, SIZE) ** 3

    def picked(x):
        return gather(x, INDEX) ** 3

    for function, values in ((total, rows(5, 2)), (picked, rows(6, 2))):
        gradcheck(function, values.requires_grad_(), check_forward_ad=True)
        tangent = torch.randn_like(values)
        with forward_ad.dual_level():
            result = function(forward_ad.make_dual(values, tangent))
            found = forward_ad.unpack_dual(result).tangent
        step = 1e-6
        ahead, behind = (
            function(values + step * tangent),
            function(values - step * tangent),
        )
        torch.testing.assert_close(
            found, (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-7
        )


@pytest.mark.usefixtures("kernel", "no_slice_loops")
@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_batched_values(in_dim):
    for function, n in ((lambda x: scatter_sum(x, INDEX, SIZE), 5), (pick, 6)):
        values = rows(4, n, 2)
        expected = torch.stack([function(one) for one in values])
        moved = values.movedim(0, in_dim)
        found = torch.vmap(function, in_dims=in_dim)(moved)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def pick(values):
    return gather(values, INDEX)


@pytest.mark.usefixtures("no_slice_loops")
def test_batched_twice():
    values = rows(3, 4, 5, 2)
    found = torch.vmap(torch.vmap(lambda x: scatter_sum(x, INDEX, SIZE)))(values)
    expected = torch.stack(
        [torch.stack([scatter_sum(x, INDEX, SIZE) for x in one]) for one in values]
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_batched_index_is_refused():
    both = torch.stack([INDEX, INDEX])
    with pytest.raises(NotImplementedError, match="batched index"):
        torch.vmap(lambda x, i: scatter_sum(x, i, SIZE))(rows(2, 5), both)


@pytest.mark.usefixtures("kernel", "no_slice_loops")
@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_cotangents_equal_the_loop(create_graph):
    """Vectorized pull-backs through sum and copy, and derivatives of these."""
    values = rows(6, 2).requires_grad_()
    mixed = (gather(values**2, INDEX) * rows(5, 2)).sin()
    outputs = scatter_sum(mixed, INDEX, SIZE).exp()
    cotangents = rows(3, *outputs.shape)

    def pull(cotangent):
        return torch.autograd.grad(
            outputs, values, cotangent, retain_graph=True, create_graph=create_graph
        )[0]

    loop = torch.stack([pull(one) for one in cotangents])
    found = torch.func.vmap(pull)(cotangents)
    torch.testing.assert_close(found, loop, rtol=1e-13, atol=1e-13)
    assert found.requires_grad is create_graph
    if create_graph:
        weights = rows(*loop.shape)
        (by_loop,) = torch.autograd.grad(
            (loop * weights).sum(), values, retain_graph=True
        )
        (by_batch,) = torch.autograd.grad((found * weights).sum(), values)
        torch.testing.assert_close(by_batch, by_loop, rtol=1e-13, atol=1e-13)
        assert by_loop.abs().max() > 0.1


@pytest.mark.usefixtures("no_slice_loops")
def test_transforms_of_torch_func():
    """``jacrev`` and ``jacfwd`` of sum and copy agree."""

    def function(x):
        return scatter_sum(gather(x, INDEX) ** 2, INDEX, SIZE)

    values = rows(6, 2)
    reverse = torch.func.jacrev(function)(values)
    forward = torch.func.jacfwd(function)(values)
    torch.testing.assert_close(reverse, forward, rtol=1e-13, atol=1e-13)
    hessian = torch.func.hessian(lambda x: function(x).pow(2).sum())(values)
    assert hessian.shape == (6, 2, 6, 2)
    assert hessian.abs().max() > 0.1


def test_promise_of_one_cotangent_ends_with_the_block():
    def fail():
        with one_cotangent():
            raise ValueError("inside")

    with one_cotangent():
        with pytest.raises(ValueError, match="inside"):
            fail()
        assert scatter._local.one_cotangent
    assert not scatter._local.one_cotangent
    with pytest.raises(ValueError, match="inside"):
        fail()
    assert not scatter._local.one_cotangent


def test_promise_holds_for_its_thread_only():
    seen = []
    with one_cotangent():
        look = threading.Thread(
            target=lambda: seen.append(getattr(scatter._local, "one_cotangent", False))
        )
        look.start()
        look.join()
    assert seen == [False]


class Broken:
    """An import hook: torch_scatter was compiled for another torch."""

    def find_spec(self, name, *_):
        if name == "torch_scatter":
            raise OSError("undefined symbol: _ZN5torch3jit")


@pytest.fixture
def _broken_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_scatter", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    scatter._kernel.cache_clear()
    yield
    scatter._kernel.cache_clear()


@pytest.mark.usefixtures("_broken_extra")
def test_broken_extra_falls_back(monkeypatch):
    monkeypatch.delenv("GNNFORCE_SCATTER", raising=False)
    values = rows(5, 2)
    np.testing.assert_allclose(scatter_sum(values, INDEX, SIZE), sum_by_hand(values))


@pytest.mark.usefixtures("_broken_extra")
def test_broken_extra_that_was_asked_for_is_an_error(monkeypatch):
    monkeypatch.setenv("GNNFORCE_SCATTER", "torch_scatter")
    with pytest.raises(ConfigError, match=r"undefined symbol.*extra 'scatter'"):
        scatter_sum(rows(5, 2), INDEX, SIZE)


def test_unknown_choice_is_an_error(monkeypatch):
    monkeypatch.setenv("GNNFORCE_SCATTER", "fast")
    with pytest.raises(ConfigError, match="'fast': choose auto, native or torch_scatter"):
        scatter_sum(rows(5, 2), INDEX, SIZE)
