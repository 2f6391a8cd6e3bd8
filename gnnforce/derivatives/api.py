"""Gradients of many outputs of anybody's model."""

import torch
from torch import Tensor

from gnnforce.derivatives.strategies import pull_back
from gnnforce.errors import UserError


def gradients(
    outputs: Tensor,
    inputs: Tensor,
    strategy: str = "auto",
    *,
    create_graph: bool = False,
) -> Tensor:
    r"""Differentiate every output with respect to one input.

    .. math:: G_{n} = \partial y_n / \partial x

    Each output gets its own gradient; nothing is summed over outputs, unlike with
    ``torch.autograd.grad(outputs.unbind(), inputs)`` or a cotangent of ones.

    Args:
        outputs: ``y``, shape ``(n_outputs,)``, computed from ``inputs``.
        inputs: ``x``, a tensor that requires a gradient, any shape.
        strategy: ``"loop"``, ``"batched"`` or ``"auto"``; the others need to know the
            model and are options of ``ForceField.predict``.
        create_graph: Keep the gradients differentiable (and the graph alive).

    Returns:
        Shape ``(n_outputs, *inputs.shape)``; zeros where an output does not depend on
        the input.

    Raises:
        UserError: When ``outputs`` is not a vector, ``inputs`` does not require a
            gradient, the outputs were computed without one, or the strategy does not
            exist.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> gradients(torch.stack([x.sum(), x.prod()]), x)
        tensor([[1., 1.],
                [2., 1.]])
    """
    if outputs.dim() != 1:
        raise UserError(
            f"outputs must have the shape (n_outputs,), not {tuple(outputs.shape)}; "
            "use outputs.flatten()"
        )
    if not inputs.requires_grad:
        raise UserError(
            "inputs do not require a gradient; call inputs.requires_grad_() before "
            "computing the outputs"
        )
    if not outputs.requires_grad:
        raise UserError(
            "outputs do not depend on anything that requires a gradient; were they "
            "computed under torch.no_grad()?"
        )
    unit = torch.eye(outputs.shape[0], dtype=outputs.dtype, device=outputs.device)
    return pull_back(outputs, inputs, unit, strategy=strategy, create_graph=create_graph)
