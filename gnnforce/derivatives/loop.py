"""One backward pass an output: the reference that everything is tested against."""

import torch
from torch import Tensor


def loop_pull_back(
    outputs: Tensor,
    inputs: Tensor,
    cotangents: Tensor,
    create_graph: bool,
    keep: bool = False,
) -> Tensor:
    """Pull cotangents back one after the other; arguments as ``pull_back``.

    The graph is freed with the last cotangent unless ``create_graph`` or ``keep``.
    """
    last = cotangents.shape[0] - 1
    rows = [
        torch.autograd.grad(
            outputs,
            inputs,
            cotangent,
            retain_graph=create_graph or keep or number < last,
            create_graph=create_graph,
            materialize_grads=True,
        )[0]
        for number, cotangent in enumerate(cotangents)
    ]
    return torch.stack(rows)
