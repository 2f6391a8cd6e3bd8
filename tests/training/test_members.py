import pytest
import torch

from gnnforce.training.members import (
    Draws,
    draw_outputs,
    every_output,
    poisson_weights,
    uniform_numbers,
)


def test_weights_depend_on_seed_frame_and_member_alone():
    frames, members = torch.arange(50), torch.arange(4)
    every = poisson_weights(frames, members, seed=3)
    torch.random.manual_seed(99)
    shuffled = torch.randperm(50)
    again = poisson_weights(frames[shuffled], members[[2, 0]], seed=3)
    assert torch.equal(again, every[[2, 0]][:, shuffled])
    assert not torch.equal(poisson_weights(frames, members, seed=4), every)


def test_weights_have_the_poisson_distribution():
    weights = poisson_weights(torch.arange(100_000), torch.arange(2), seed=0)
    for row in weights:
        share = torch.bincount(row.long(), minlength=5)[:5] / len(row)
        expected = torch.tensor([0.36788, 0.36788, 0.18394, 0.06131, 0.01533])
        assert torch.allclose(share, expected, atol=0.005)
    assert abs(torch.corrcoef(weights)[0, 1]) < 0.01


def test_uniform_numbers_are_uniform_and_streams_differ():
    names = torch.arange(100_000)
    one, other = uniform_numbers(1, 0, names), uniform_numbers(2, 0, names)
    assert one.min() >= 0
    assert one.max() < 1
    histogram = torch.histc(one, 10, 0, 1) / len(one)
    assert torch.allclose(histogram, torch.full((10,), 0.1).double(), atol=0.005)
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.01


def test_the_global_random_state_is_not_used():
    before = torch.get_rng_state()
    poisson_weights(torch.arange(5), torch.arange(2), seed=0)
    draw_outputs(torch.ones(3, 5), 2, seed=0, step=0, frame_ids=torch.arange(5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("n_draws", [1, 2, 5])
def test_draws_have_the_frequency_of_their_shares(n_draws):
    n_graphs = 20_000
    shares = torch.tensor([[1.0], [0.0], [3.0], [4.0]]).expand(4, n_graphs)
    draws = draw_outputs(
        shares, n_draws, seed=1, step=3, frame_ids=torch.arange(n_graphs)
    )
    flat = draws.outputs.flatten()
    frequency = torch.bincount(flat, minlength=4).double() / flat.numel()
    expected = torch.tensor([0.125, 0.0, 0.375, 0.5], dtype=torch.float64)
    assert torch.allclose(frequency, expected, atol=0.01)
    assert frequency[1] == 0
    # the expectation of the factors is one for everything that can be drawn
    sums = torch.zeros(4).double().scatter_add(0, flat, draws.factors.flatten())
    means = sums / n_graphs
    assert torch.allclose(means[[0, 2, 3]], torch.ones(3).double(), atol=0.05)


def test_no_output_is_drawn_twice_while_its_share_allows():
    draws = draw_outputs(torch.ones(8, 30), 4, seed=0, step=0, frame_ids=torch.arange(30))
    for column in draws.outputs.T:
        assert len(set(column.tolist())) == 4


def test_draws_do_not_depend_on_the_batch():
    shares = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([3, 1, 4, 15, 9, 2])
    every = draw_outputs(shares, 2, seed=0, step=8, frame_ids=ids)
    one = draw_outputs(shares[:, 3:4], 2, seed=0, step=8, frame_ids=ids[3:4])
    assert torch.equal(one.outputs[:, 0], every.outputs[:, 3])
    other = draw_outputs(shares, 2, seed=0, step=9, frame_ids=ids)
    assert not torch.equal(other.outputs, every.outputs)


def test_a_graph_with_nothing_to_draw_has_no_factor_and_no_cotangent():
    shares = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    draws = draw_outputs(shares, 1, seed=0, step=0, frame_ids=torch.arange(2))
    assert draws.factors[0, 0] == 0
    assert torch.equal(
        draws.cotangents(2).sum(dim=1), torch.tensor([[0.0, 1.0]]).double()
    )


def test_every_output_is_each_once():
    draws = every_output(torch.tensor([[0.5, 0.0], [0.1, 2.0]]))
    assert draws.outputs.tolist() == [[0, 0], [1, 1]]
    assert draws.factors.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_cotangents_are_one_hot():
    draws = Draws(torch.tensor([[2, 0]]), torch.tensor([[1.0, 3.0]]))
    expected = torch.tensor([[[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]])
    assert torch.equal(draws.cotangents(3), expected.double())
