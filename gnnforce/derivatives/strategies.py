"""Ways to pull many cotangents back through one graph of operations."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from gnnforce.derivatives.batched import batched_pull_back
from gnnforce.derivatives.chain import chain_pull_back
from gnnforce.derivatives.loop import loop_pull_back
from gnnforce.errors import UserError, did_you_mean


class PullBack(Protocol):
    """Pulls cotangents back; frees the graph unless ``create_graph`` or ``keep``."""

    def __call__(
        self,
        outputs: Tensor,
        inputs: Tensor,
        cotangents: Tensor,
        create_graph: bool,
        keep: bool = False,
    ) -> Tensor:
        """Return ``(n_cotangents, *inputs.shape)``."""


# For the outputs of any model.
STRATEGIES: dict[str, PullBack] = {
    "loop": loop_pull_back,
    "batched": batched_pull_back,
}

# How a force field's features are pulled back.
ENGINES: dict[str, PullBack] = {**STRATEGIES, "chain": chain_pull_back}

# For a force field, which says what its outputs are made of.
OF_MODELS = ("loop", "batched", "chain", "jacobian", "forward")

# A vectorized pass saves launching operations and costs memory traffic: it wins only for
# many outputs of a small input (measured with scripts/benchmark_strategies.py).
BATCHED_FROM_OUTPUTS = 8
BATCHED_UP_TO_INPUTS = 600


def check_strategy(name: str, options: Sequence[str] = OF_MODELS) -> None:
    """Raise for a strategy that does not exist, or that is not among the options.

    Args:
        name: ``"auto"`` or the name of a strategy.
        options: What the model supports.

    Raises:
        UserError: Lists the options.
    """
    if name == "auto" or name in options:
        return
    listed = ", ".join(["auto", *options])
    if name in OF_MODELS:
        raise UserError(f"this model does not support strategy {name!r}; it has {listed}")
    raise UserError(
        f"unknown strategy {name!r}; there are {listed}."
        + did_you_mean(str(name), ["auto", *options])
    )


def choose_strategy(name: str, n_cotangents: int, n_inputs: int) -> str:
    """Resolve ``"auto"`` for outputs of any model, and check every other name.

    Args:
        name: ``"auto"`` or a key of ``STRATEGIES``.
        n_cotangents: Number of pull-backs.
        n_inputs: Number of entries of the input.

    Returns:
        The name of the strategy to use.

    Raises:
        UserError: For a name that does not exist, or that needs a force field.

    Example:
        >>> choose_strategy("auto", n_cotangents=1, n_inputs=100)
        'loop'
    """
    if name == "auto":
        many = n_cotangents >= BATCHED_FROM_OUTPUTS
        return "batched" if many and n_inputs <= BATCHED_UP_TO_INPUTS else "loop"
    if name in OF_MODELS and name not in STRATEGIES:
        raise UserError(
            f"strategy {name!r} needs to know the model: use ForceField.predict(graph, "
            f"strategy={name!r}). Any other outputs have auto, {', '.join(STRATEGIES)}"
        )
    check_strategy(name, tuple(STRATEGIES))
    return name


def pull_back(
    outputs: Tensor,
    inputs: Tensor,
    cotangents: Tensor,
    *,
    strategy: str = "auto",
    create_graph: bool = False,
    keep: bool = False,
) -> Tensor:
    r"""Contract many cotangents with one Jacobian.

    .. math:: G_c = \sum_k w_{ck}\, \partial y_k / \partial x

    Args:
        outputs: ``y``, any shape.
        inputs: ``x``, requires a gradient.
        cotangents: ``w``, shape ``(n_cotangents, *outputs.shape)``.
        strategy: Name of a strategy, or ``"auto"``.
        create_graph: Keep the result differentiable, and the graph of ``outputs`` alive.
        keep: Keep the graph of ``outputs`` alive, for another piece of the cotangents.

    Returns:
        Shape ``(n_cotangents, *inputs.shape)``; zeros where an output does not depend on
        the inputs.

    Raises:
        UserError: For an unknown strategy.

    Example:
        >>> import torch
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> weights = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> pull_back(x**2, x, weights, strategy="loop")
        tensor([[2., 0.],
                [2., 4.]])
    """
    used = choose_strategy(strategy, cotangents.shape[0], inputs.numel())
    if not outputs.requires_grad or cotangents.shape[0] == 0:
        return inputs.new_zeros(cotangents.shape[0], *inputs.shape)
    return STRATEGIES[used](outputs, inputs, cotangents, create_graph, keep)
