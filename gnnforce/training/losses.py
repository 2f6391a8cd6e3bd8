r"""Losses of energies, forces and stress over heads, members, graphs and atoms.

The loss of a quantity, with :math:`\ell` the square or Huber's function, is a weighted
mean over what is labeled, a mean over the members of a head, and a sum over heads:

.. math:: L = \sum_h \frac{1}{M_h} \sum_{m \in h}
          \frac{\sum_g w_g\, p_{mg} \sum_{k \in g} \ell(y_{mk} - y^\mathrm{ref}_{hk})}
               {\sum_g w_g\, K_{hg}}

``w_g`` is the weight of a frame and :math:`p_{mg}` the bootstrap weight of a member.
``k`` runs over the :math:`K_{hg}` labeled numbers of graph ``g``: the energy divided by
the number of atoms of that graph, the components of the forces of labeled atoms, the
components of the stress. Weights (2, 2) give the same as (1, 1), and (1, 0) the same as
the first frame alone.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gnnforce.errors import DataError


class ErrorFunction(NamedTuple):
    r"""What an error costs.

    .. math:: \ell(d) = d^2 \quad\text{or, for Huber and } |d| > \delta,\quad
              \delta (2 |d| - \delta)

    Attributes:
        kind: ``mse`` or ``huber``.
        delta: Where ``huber`` becomes linear, in the unit of the error.
    """

    kind: Literal["huber", "mse"] = "mse"
    delta: float = 1.0

    def __call__(self, error: Tensor) -> Tensor:
        """Apply it to every number.

        Example:
            >>> ErrorFunction("huber", 1.0)(torch.tensor([0.0, 0.5, 3.0]))
            tensor([0.0000, 0.2500, 5.0000])
        """
        if self.kind == "mse":
            return error**2
        size = error.abs()
        return torch.where(
            size <= self.delta, error**2, self.delta * (2 * size - self.delta)
        )


def weighted_loss(
    predicted: Tensor,
    reference: Tensor,
    coefficients: Tensor,
    function: ErrorFunction,
) -> Tensor:
    r"""Sum errors times their coefficients, over tensors of one shape.

    .. math:: L = \sum_k c_k\, \ell(y_k - y^\mathrm{ref}_k)

    Args:
        predicted: Predictions, any shape.
        reference: Labels; where the coefficient is zero they do not matter.
        coefficients: Not negative.
        function: What an error costs.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: When the shapes differ; nothing is ever broadcast.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> weighted_loss(x, torch.zeros(2), torch.tensor([1.0, 0.5]), ErrorFunction())
        tensor(3.)
    """
    same_shape(predicted=predicted, reference=reference, coefficients=coefficients)
    used = coefficients > 0
    error = torch.where(used, predicted - reference, torch.zeros_like(predicted))
    return (coefficients * function(error)).sum()


def energy_loss(
    predicted: Tensor,
    reference: Tensor,
    coefficients: Tensor,
    n_atoms: Tensor,
    function: ErrorFunction,
) -> Tensor:
    """Sum errors of energies per atom.

    Args:
        predicted: Energies in eV, shape ``(n_outputs, n_graphs)``.
        reference: Labels in eV, same shape.
        coefficients: Same shape.
        n_atoms: Number of atoms of every graph, shape ``(n_graphs,)``.
        function: What an error in eV/atom costs.

    Returns:
        The loss, a scalar.

    Raises:
        ValueError: When the shapes do not fit.
    """
    same_shape(predicted=predicted, reference=reference, coefficients=coefficients)
    if predicted.dim() != 2 or n_atoms.shape != predicted.shape[1:]:
        raise ValueError(
            f"energies {tuple(predicted.shape)} and numbers of atoms "
            f"{tuple(n_atoms.shape)} must be (n_outputs, n_graphs) and (n_graphs,)"
        )
    sizes = n_atoms.to(predicted.dtype).clamp(min=1).expand(predicted.shape)
    return weighted_loss(predicted / sizes, reference / sizes, coefficients, function)


def label_sums(counts: Tensor, frame_weight: Tensor) -> Tensor:
    """Sum the labels of every head, weighted by frame: the denominators of the loss.

    Args:
        counts: Labeled numbers of every head and graph, shape ``(n_heads, n_graphs)``.
        frame_weight: Shape ``(n_graphs,)``.

    Returns:
        Shape ``(n_heads,)``.

    Raises:
        DataError: For a negative weight.
    """
    negative = frame_weight < 0
    if frame_weight.device.type != "cpu":
        torch._assert_async(~negative.any())  # noqa: SLF001  (looking would wait)
    elif bool(negative.any()):
        value = float(frame_weight[negative][0])
        raise DataError(f"weights of frames must not be negative, but one is {value:g}")
    return (counts * frame_weight.double()).sum(dim=1)


def loss_coefficients(
    counts: Tensor, sums: Tensor, frame_weight: Tensor, member_share: Tensor, rows: Tensor
) -> Tensor:
    r"""Return what multiplies the summed error of every output and graph.

    .. math:: c_{ng} = \frac{w_g\, s_{ng}}{\sum_g w_g K_{hg}}

    Args:
        counts: Labeled numbers of every head and graph, shape ``(n_heads, n_graphs)``.
        sums: Denominators of the heads, shape ``(n_heads,)``.
        frame_weight: ``w``, shape ``(n_graphs,)``.
        member_share: ``s``: bootstrap weight over number of members, shape ``(n_outputs,
            n_graphs)``.
        rows: The head of every output, shape ``(n_outputs,)``.

    Returns:
        Shape ``(n_outputs, n_graphs)``; zero where nothing is labeled, and for a head
        whose weights are all zero.
    """
    safe = torch.where(sums > 0, sums, torch.ones_like(sums))
    per_head = (counts > 0) * frame_weight.double() / safe[:, None]
    return per_head.index_select(0, rows) * member_share


def same_shape(**tensors: Tensor) -> None:
    """Check that tensors have one shape.

    Raises:
        ValueError: Names them with their shapes.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        text = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"shapes must be equal and are not broadcast: {text}")
