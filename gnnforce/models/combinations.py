"""Combinations of outputs whose derivatives cost one pull-back each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnforce.errors import StatisticsError, UserError
from gnnforce.readouts.head import OutputTable


@dataclass(frozen=True)
class Combination:
    """A number made of the energies of all outputs, given by its slopes in them.

    Made by :func:`mean_of`, :func:`difference_of` and :func:`deviation_of`, and passed as
    ``weights`` to :meth:`~gnnforce.models.force_field.ForceField.predict`.

    Attributes:
        name: What it is, in words.
        slopes: From energies ``(n_outputs, n_graphs)`` and the table of outputs to slopes
            of the same shape.
    """

    name: str
    slopes: Callable[[Tensor, OutputTable], Tensor]


Weights = Tensor | Combination | Sequence[Combination]


def mean_of(head: str | None = None) -> Combination:
    r"""Mean over the members of a head.

    .. math:: \bar E = \tfrac1M \sum_m E_m

    Args:
        head: Name of the head; the first one when None.

    Example:
        >>> from gnnforce.readouts.head import Head
        >>> table = OutputTable((Head("pbe", members=4), Head("hf")))
        >>> weights_of(mean_of("pbe"), torch.zeros(5, 1), table)[0, :, 0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.0000])
    """

    def slopes(energy: Tensor, outputs: OutputTable) -> Tensor:
        rows = _rows(head, outputs)
        result = torch.zeros_like(energy)
        result[rows] = 1 / (rows.stop - rows.start)
        return result

    return Combination(f"mean of {head or 'the first head'}", slopes)


def difference_of(head: str, other: str) -> Combination:
    """Mean of one head minus mean of another, such as a correction between theories.

    Args:
        head: Name of the first head.
        other: Name of the head that is subtracted.
    """

    def slopes(energy: Tensor, outputs: OutputTable) -> Tensor:
        return mean_of(head).slopes(energy, outputs) - mean_of(other).slopes(
            energy, outputs
        )

    return Combination(f"{head} minus {other}", slopes)


def deviation_of(head: str | None = None) -> Combination:
    r"""Standard deviation of the energy over the members of a head (ddof=1).

    .. math:: \frac{\partial \sigma}{\partial E_m} = \frac{E_m - \bar E}{(M-1)\,\sigma}

    Its forces push a simulation along or against the uncertainty of the energy. Where
    all members agree, as on an isolated atom, the deviation has a kink; its slope there
    is taken to be zero.

    Args:
        head: Name of the head; the first one when None.
    """

    def slopes(energy: Tensor, outputs: OutputTable) -> Tensor:
        rows = _rows(head, outputs)
        own = energy[rows]
        n_members = own.shape[0]
        if n_members < 2:
            raise StatisticsError(
                f"head {outputs.head_of[rows.start]!r} has one member and so no standard "
                "deviation; train it with members >= 2"
            )
        apart = own - own.mean(dim=0)
        square = (apart * apart).sum(dim=0) / (n_members - 1)
        kink = square == 0
        sigma = torch.where(kink, torch.ones_like(square), square).sqrt()
        result = torch.zeros_like(energy)
        result[rows] = apart / ((n_members - 1) * sigma)
        return result

    return Combination(f"deviation of {head or 'the first head'}", slopes)


def _rows(head: str | None, outputs: OutputTable) -> slice:
    return outputs.slice(outputs.names[0] if head is None else head)


def count(weights: Weights) -> int:
    """Return the number of combinations.

    Raises:
        UserError: For what is neither a tensor nor combinations.
    """
    if isinstance(weights, Tensor):
        return weights.shape[0] if weights.dim() else 1
    if isinstance(weights, Combination):
        return 1
    if not isinstance(weights, Sequence) or not all(
        isinstance(one, Combination) for one in weights
    ):
        raise UserError(
            "weights must be a tensor (n_combinations, n_outputs, n_graphs), or made by "
            "mean_of, difference_of or deviation_of, or a list of those"
        )
    return len(weights)


def weights_of(weights: Weights, energy: Tensor, outputs: OutputTable) -> Tensor:
    """Return the weights as a tensor, shape ``(n_combinations, n_outputs, n_graphs)``.

    Raises:
        UserError: For weights of another shape.
        UnknownHeadError: For a head that was not evaluated.
        StatisticsError: For the deviation of a head with one member.
    """
    if isinstance(weights, Tensor):
        if weights.shape[1:] != energy.shape or weights.dim() != 3:
            raise UserError(
                "weights must have the shape (n_combinations, n_outputs, n_graphs) = "
                f"(..., {energy.shape[0]}, {energy.shape[1]}), not {tuple(weights.shape)}"
            )
        # a tensor made under inference_mode cannot be saved for a backward pass
        return (weights.clone() if weights.is_inference() else weights).to(energy)
    several = [weights] if isinstance(weights, Combination) else list(weights)
    if not several:
        return energy.new_zeros(0, *energy.shape)
    return torch.stack([one.slopes(energy, outputs) for one in several])
