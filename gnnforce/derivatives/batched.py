"""All outputs in one vectorized backward pass."""

import torch
from torch import Tensor

from gnnforce.derivatives.support import explained


def batched_pull_back(
    outputs: Tensor,
    inputs: Tensor,
    cotangents: Tensor,
    create_graph: bool,
    keep: bool = False,
) -> Tensor:
    """Pull all cotangents back at once; arguments as ``pull_back``.

    ``torch.func.vmap`` over ``autograd.grad`` is used instead of
    ``is_grads_batched=True``: the latter runs PyTorch's legacy batching, which falls
    back to a loop over slices for silu, tanh, indexing and scattering, and ignores the
    ``vmap`` rule of an ``autograd.Function``.

    Raises:
        UserError: When an operation of the model cannot be vectorized.
    """

    def one(cotangent: Tensor) -> Tensor:
        (row,) = torch.autograd.grad(
            outputs,
            inputs,
            cotangent,
            retain_graph=create_graph or keep,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return row

    with explained("batched"):
        result: Tensor = torch.func.vmap(one)(cotangents)
    return result
