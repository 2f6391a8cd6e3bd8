"""All outputs through the aggregation primitives, one Jacobian of the edges for all."""

import torch
from torch import Tensor


def chain_pull_back(
    outputs: Tensor,
    inputs: Tensor,
    cotangents: Tensor,
    create_graph: bool,
    keep: bool = False,
) -> Tensor:
    r"""Pull the cotangents of all outputs back together; arguments as ``pull_back``.

    .. math:: \frac{\partial E_n}{\partial \mathbf r_e} = \sum_\mathrm{layers} C_{n i}
              \cdot \Big(x_j \otimes \frac{\partial b}{\partial \mathbf r_e}\Big)

    The Jacobian in parentheses does not depend on the output. The outputs must have been
    computed inside :func:`gnnforce.ops.mode.chained`: the primitives
    (:mod:`gnnforce.ops.aggregate`) then contract the node cotangents ``C`` of all
    outputs with it in one matrix product an atom and layer.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> chain_pull_back(x * x, x, torch.eye(2), create_graph=False)
        tensor([[2., 0.],
                [0., 4.]])
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

    result: Tensor = torch.func.vmap(one)(cotangents)
    return result
