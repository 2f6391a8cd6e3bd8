r"""Which frames a member sees, and whose derivatives a step trains.

Both are pure functions of numbers that name the case (seed, frame, member, step) through
an integer hash. No random state exists, so that nothing has to be saved, a run that was
stopped goes on identically, and the batch a frame is in does not matter.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64)
_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB

BOOTSTRAP_STREAM = 1
DERIVATIVE_STREAM = 2
TASK_STREAM = 3


class Draws(NamedTuple):
    """Outputs whose derivatives are trained, per graph.

    Attributes:
        outputs: Output index, int64, shape ``(n_draws, n_graphs)``.
        factors: What multiplies the loss of a draw so that its expectation is the loss
            of all outputs, ``1 / (n_draws * probability)``; zero for a graph without
            anything to draw, shape ``(n_draws, n_graphs)``.
    """

    outputs: Tensor
    factors: Tensor

    def cotangents(self, n_outputs: int) -> Tensor:
        """Return the weights that ``predict`` takes, ``(n_draws, n_outputs, n_graphs)``."""
        n_draws, n_graphs = self.outputs.shape
        shape = (n_draws, n_outputs, n_graphs)
        zeros = torch.zeros(shape, dtype=torch.float64, device=self.outputs.device)
        drawn = (self.factors > 0).double()
        return zeros.scatter(1, self.outputs[:, None], drawn[:, None])


def uniform_numbers(stream: int, seed: int, *names: Tensor) -> Tensor:
    """Hash whole numbers to uniform numbers.

    Args:
        stream: Separates uses of the same names.
        seed: Of the run.
        names: int64 tensors that broadcast against each other.

    Returns:
        Float64 in [0, 1), in the shape that ``names`` broadcast to.

    Example:
        >>> one, same, other = uniform_numbers(1, 0, torch.tensor([5, 5, 6]))
        >>> bool(one == same), bool(one == other)
        (True, False)
    """
    start = torch.zeros((), dtype=torch.int64, device=names[0].device)
    state = _mix(_mix(start + stream) + seed)
    for name in names:
        state = _mix(state + name)
    return _shift(state, 11).double() * 2.0**-53


def poisson_weights(frame_ids: Tensor, members: Tensor, seed: int) -> Tensor:
    r"""Return how often each member sees each frame (Poisson bootstrap, mean one).

    .. math:: P(w = k) = e^{-1} / k!

    Args:
        frame_ids: Row of every frame in the data set, int64, shape ``(n_frames,)``.
        members: Number of every member, int64, shape ``(n_members,)``.
        seed: Of the run.

    Returns:
        Float64 whole numbers, shape ``(n_members, n_frames)``.

    Example:
        >>> weights = poisson_weights(torch.arange(10000), torch.arange(2), seed=0)
        >>> [round(value, 1) for value in weights.mean(dim=1).tolist()]
        [1.0, 1.0]
    """
    uniform = uniform_numbers(BOOTSTRAP_STREAM, seed, frame_ids[None], members[:, None])
    orders = torch.arange(20, dtype=torch.float64, device=uniform.device)
    cumulative = torch.exp(-1.0 - torch.lgamma(orders + 1)).cumsum(0)
    return torch.searchsorted(cumulative, uniform, right=True).double()


def draw_outputs(
    shares: Tensor, n_draws: int, *, seed: int, step: int, frame_ids: Tensor
) -> Draws:
    r"""Draw outputs for every graph in proportion to their share of the loss.

    Systematic sampling: with :math:`q_n` the shares of a graph divided by their sum and
    one uniform number ``u``, draw ``d`` is the output at ``(u + d) / n_draws`` on the
    cumulative shares. The expected number of draws of an output is ``n_draws q_n``, and
    no output is drawn twice while that is at most one.

    Args:
        shares: Not negative, shape ``(n_outputs, n_graphs)``.
        n_draws: Number of draws for every graph.
        seed: Of the run.
        step: Number of the optimizer step.
        frame_ids: Row of every graph in the data set, shape ``(n_graphs,)``.

    Returns:
        The draws.
    """
    device = shares.device
    steps = torch.full((1,), step, dtype=torch.int64, device=device)
    uniform = uniform_numbers(DERIVATIVE_STREAM, seed, steps, frame_ids)
    numbers = torch.arange(n_draws, dtype=torch.float64, device=device)[:, None]
    cumulative = shares.double().cumsum(0)  # (n_outputs, n_graphs)
    points = (uniform + numbers) / n_draws * cumulative[-1]  # (n_draws, n_graphs)
    outputs = (cumulative[None] <= points[:, None]).sum(dim=1)
    outputs = outputs.clamp(max=shares.shape[0] - 1)
    return Draws(outputs, _factors(shares.double(), outputs, n_draws))


def every_output(shares: Tensor) -> Draws:
    """Return all outputs of every graph, each once, without any chance."""
    n_outputs, n_graphs = shares.shape
    numbers = torch.arange(n_outputs, device=shares.device)[:, None]
    return Draws(numbers.expand(n_outputs, n_graphs), (shares > 0).double())


def _factors(shares: Tensor, outputs: Tensor, n_draws: int) -> Tensor:
    drawn = shares.gather(0, outputs)  # (n_draws, n_graphs)
    possible = drawn > 0
    safe = torch.where(possible, drawn, torch.ones_like(drawn))
    return torch.where(possible, shares.sum(0) / (n_draws * safe), torch.zeros_like(safe))


def _mix(state: Tensor) -> Tensor:
    state = state + _GAMMA
    state = (state ^ _shift(state, 30)) * _MIX_1
    state = (state ^ _shift(state, 27)) * _MIX_2
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros, which ``>>`` of int64 does not."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
