"""Ways to pull many cotangents back through one graph of operations."""

from collections.abc import Callable

from torch import Tensor

from gnnforce.derivatives.batched import batched_pull_back
from gnnforce.derivatives.loop import loop_pull_back
from gnnforce.errors import UserError, did_you_mean

PullBack = Callable[[Tensor, Tensor, Tensor, bool], Tensor]

STRATEGIES: dict[str, PullBack] = {
    "loop": loop_pull_back,
    "batched": batched_pull_back,
}

# A vectorized pass saves launching operations and costs memory traffic: it wins only for
# many outputs of a small molecule (measured with scripts/benchmark_strategies.py).
BATCHED_FROM_OUTPUTS = 8
BATCHED_UP_TO_INPUTS = 600


def choose_strategy(name: str, n_cotangents: int, n_inputs: int) -> str:
    """Resolve ``"auto"`` and check every other name.

    Args:
        name: ``"auto"`` or a key of ``STRATEGIES``.
        n_cotangents: Number of pull-backs.
        n_inputs: Number of entries of the input.

    Returns:
        The name of the strategy to use.

    Raises:
        UserError: For a name that does not exist.

    Example:
        >>> choose_strategy("auto", n_cotangents=1, n_inputs=100)
        'loop'
    """
    if name == "auto":
        many = n_cotangents >= BATCHED_FROM_OUTPUTS
        return "batched" if many and n_inputs <= BATCHED_UP_TO_INPUTS else "loop"
    if name not in STRATEGIES:
        options = ["auto", *STRATEGIES]
        raise UserError(
            f"unknown strategy {name!r}; there are {', '.join(options)}."
            + did_you_mean(str(name), options)
        )
    return name


def pull_back(
    outputs: Tensor,
    inputs: Tensor,
    cotangents: Tensor,
    *,
    strategy: str = "auto",
    create_graph: bool = False,
) -> Tensor:
    r"""Contract many cotangents with one Jacobian.

    .. math:: G_c = \sum_k w_{ck}\, \partial y_k / \partial x

    Args:
        outputs: ``y``, any shape.
        inputs: ``x``, requires a gradient.
        cotangents: ``w``, shape ``(n_cotangents, *outputs.shape)``.
        strategy: Name of a strategy, or ``"auto"``.
        create_graph: Keep the result differentiable, and the graph of ``outputs`` alive.

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
    return STRATEGIES[used](outputs, inputs, cotangents, create_graph)
