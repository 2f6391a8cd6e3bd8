"""Gradients of the losses of several tasks, and how they become one."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnforce.derivatives.parameters import pull_back_all
from gnnforce.errors import ConfigError, GradientError, UserError, did_you_mean

# A Jacobian (n_tasks, n_numbers) to one gradient (n_numbers,): what TorchJD calls an
# aggregator.
Aggregator = Callable[[Tensor], Tensor]

AGGREGATORS = {"upgrad": "UPGrad", "pcgrad": "PCGrad", "mgda": "MGDA"}


class TaskGradients(NamedTuple):
    """Gradients of every task.

    Attributes:
        shared: For every shared parameter, shape ``(n_tasks, *parameter.shape)``.
        own: For every parameter of one task, its gradient, ``parameter.shape``.
    """

    shared: list[Tensor]
    own: list[Tensor]


def task_gradients(
    losses: Tensor,
    shared: Sequence[Tensor],
    own: Sequence[Tensor] = (),
    *,
    chunk: int | None = None,
    keep: bool = False,
) -> TaskGradients:
    r"""Differentiate the loss of every task, all tasks together.

    .. math:: J_{tp} = \partial L_t / \partial \theta_p

    Args:
        losses: ``L``, shape ``(n_tasks,)``.
        shared: Parameters of all tasks, such as the backbone's.
        own: Parameters that one task each depends on, such as those of heads; also
            tensors that hold parameters of several tasks side by side.
        chunk: Losses to pull back at once; all when None. With 1 they go one after the
            other, which every operation supports: losses on forces of strategy
            ``chain`` need it.
        keep: Keep the graph of the losses.

    Returns:
        The gradients; zeros where a loss does not depend on a parameter. ``.grad`` is not
        touched.

    Raises:
        UserError: When the losses are no vector or have no gradient, a parameter does
            not require one, or an operation has no rule for batched cotangents.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> task_gradients(torch.stack([w.sum(), w.prod()]), [w]).shared[0]
        tensor([[1., 1.],
                [2., 1.]])
    """
    _check(losses, shared, own)
    unit = torch.eye(len(losses), dtype=losses.dtype, device=losses.device)
    rows = pull_back_all(losses, [*shared, *own], unit, chunk, keep)
    # all rows but one are zero: the sum is that one, without a search for it
    return TaskGradients(
        rows[: len(shared)], [row.sum(dim=0) for row in rows[len(shared) :]]
    )


def backward_tasks(
    losses: Tensor,
    shared: Sequence[Tensor],
    own: Sequence[Tensor] = (),
    aggregator: Aggregator | None = None,
    *,
    weights: Sequence[float] | Tensor | None = None,
    chunk: int | None = None,
    keep: bool = False,
) -> None:
    r"""Add gradients of several tasks to ``.grad``, in place of ``loss.backward()``.

    .. math:: g_\mathrm{shared} = A\big(w_1 \nabla L_1, \ldots, w_T \nabla L_T\big),
              \qquad g_\mathrm{own} = \nabla_\mathrm{own} \sum_t w_t L_t

    Without an aggregator ``A`` is the sum, and the result is that of
    ``(weights @ losses).backward()`` in one plain pull-back. With one, the gradients of
    all tasks on the shared parameters are computed together and combined by it; a
    parameter of one task gets the gradient of its own (weighted) loss.

    A task whose gradient on the shared parameters is exactly zero, such as one without
    a label in this batch, has no say: otherwise the shortest vector between the
    gradients, which MGDA looks for, would be zero as well.

    Args:
        losses: ``L``, shape ``(n_tasks,)``.
        shared: Parameters of all tasks.
        own: Parameters of one task each; see :func:`task_gradients`.
        aggregator: Combines a matrix ``(n_tasks, n_numbers)`` to ``(n_numbers,)``:
            an aggregator of TorchJD, or any function; None for the sum.
        weights: ``w``, shape ``(n_tasks,)``, not negative; ones when None.
        chunk: Losses to pull back at once; see :func:`task_gradients`.
        keep: Keep the graph of the losses.

    Raises:
        UserError: See :func:`task_gradients`; also for weights of another number, below
            zero or not finite, and for an aggregator that returns another shape.
        GradientError: When an aggregator is used and a gradient is not finite; nothing is
            written then.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> backward_tasks(torch.stack([w.sum(), w.prod()]), [w], weights=[1.0, 0.5])
        >>> w.grad
        tensor([2.0000, 1.5000])
    """
    _check(losses, shared, own)
    weighted = losses * _factors(losses, weights)
    if aggregator is None:
        rows, gradients = task_gradients(weighted.sum()[None], [*shared, *own], keep=keep)
        gradients = [row[0] for row in rows]
    else:
        rows, of_own = task_gradients(weighted, shared, own, chunk=chunk, keep=keep)
        _check_finite(of_own)
        gradients = [*combine(rows, aggregator), *of_own]
    for parameter, gradient in zip([*shared, *own], gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = gradient.clone()
        else:
            parameter.grad += gradient


def combine(rows: Sequence[Tensor], aggregator: Aggregator) -> list[Tensor]:
    """Combine gradients of several tasks over all parameters as one long vector.

    Args:
        rows: For every parameter ``(n_tasks, *shape)``.
        aggregator: A matrix ``(n_tasks, n_numbers)`` to a vector ``(n_numbers,)``.

    Returns:
        For every parameter ``shape``; zeros when all gradients are zero.

    Raises:
        GradientError: When a gradient is not finite.
        UserError: When the aggregator returns something else.

    Example:
        >>> mean = lambda matrix: matrix.mean(0)
        >>> combine([torch.tensor([[1.0, 0.0], [3.0, 2.0]])], mean)
        [tensor([2., 1.])]
    """
    if not rows:
        return []
    matrix = torch.cat([row.flatten(1) for row in rows], dim=1)  # (n_tasks, n_numbers)
    _check_finite([matrix])
    (active,) = torch.where((matrix != 0).any(dim=1))
    vector = matrix.new_zeros(matrix.shape[1])
    if len(active):
        vector = aggregator(matrix.index_select(0, active))
        if not isinstance(vector, Tensor) or vector.shape != matrix.shape[1:]:
            got = tuple(vector.shape) if isinstance(vector, Tensor) else vector
            raise UserError(
                f"the aggregator must turn a matrix {tuple(matrix.shape)} into a vector "
                f"({matrix.shape[1]},), but it returned {got}"
            )
        _check_finite([vector])
    sizes = [row[0].numel() for row in rows]
    parts = vector.to(matrix.dtype).split(sizes)
    return [part.view(row.shape[1:]) for part, row in zip(parts, rows, strict=True)]


def torchjd_aggregator(name: str) -> Aggregator:
    """Return an aggregator of TorchJD that has no settings.

    ``upgrad`` projects each gradient so that it conflicts with no other, and takes their
    mean (Quinton and Rey, arXiv:2406.16232); ``pcgrad`` takes off what conflicts, in
    random order, and sums (Yu et al., arXiv:2001.06782); ``mgda`` is the shortest convex
    combination (Désidéri, Comptes Rendus 350, 313 (2012)).

    PCGrad draws from torch's global generator as TorchJD does; put it back yourself, or
    use :func:`with_seed`.

    Args:
        name: ``upgrad``, ``pcgrad`` or ``mgda``. For others make the aggregator yourself
            and give it to :func:`backward_tasks`.

    Raises:
        ConfigError: For an unknown name, or when TorchJD is not installed.
    """
    if name not in AGGREGATORS:
        raise ConfigError(
            f"unknown aggregator {name!r}; there are {', '.join(AGGREGATORS)}."
            + did_you_mean(name, AGGREGATORS)
        )
    try:
        module: Any = importlib.import_module("torchjd.aggregation")
        aggregator: Aggregator = getattr(module, AGGREGATORS[name])()
    except (ImportError, OSError) as error:  # OSError: compiled for something else
        raise ConfigError(
            f"the aggregator {name!r} needs TorchJD, which cannot be used here "
            f"({' '.join(str(error).split())}); pip install 'gnnforce[multitask]'"
        ) from error
    return aggregator


def with_seed(aggregator: Aggregator, seed: int) -> Aggregator:
    """Return an aggregator whose draws depend on a seed, and leave torch's generator alone.

    Example:
        >>> draw = with_seed(lambda matrix: torch.rand(matrix.shape[1]), seed=1)
        >>> rows = torch.ones(2, 3)
        >>> bool((draw(rows) == draw(rows)).all())
        True
    """

    def seeded(matrix: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            # not torch.manual_seed, which seeds the generators of all devices
            torch.default_generator.manual_seed(seed)
            return aggregator(matrix)

    return seeded


def _check(losses: Tensor, shared: Sequence[Tensor], own: Sequence[Tensor]) -> None:
    """Raise for losses and parameters that have no gradients."""
    if losses.dim() != 1:
        raise UserError(
            f"losses must have the shape (n_tasks,), not {tuple(losses.shape)}; "
            "use torch.stack(list_of_losses)"
        )
    if not losses.requires_grad:
        raise UserError(
            "losses do not depend on anything that requires a gradient; were they "
            "computed under torch.no_grad()?"
        )
    for name, parameters in (("shared", shared), ("own", own)):
        for number, parameter in enumerate(parameters):
            if not parameter.requires_grad:
                raise UserError(
                    f"{name} parameter {number} of shape {tuple(parameter.shape)} does "
                    "not require a gradient; leave frozen parameters out"
                )
    if len({id(p) for p in (*shared, *own)}) < len(shared) + len(own):
        raise UserError("a parameter stands twice among the shared and own ones")


def _factors(losses: Tensor, weights: Sequence[float] | Tensor | None) -> Tensor:
    """Return checked weights of the tasks."""
    shape = losses.shape[:1]
    if weights is None:
        return torch.ones(shape, dtype=losses.dtype, device=losses.device)
    factors = torch.as_tensor(weights, dtype=losses.dtype, device=losses.device)
    if factors.shape != shape:
        raise UserError(
            f"give one weight for each of the {losses.numel()} losses, not "
            f"{tuple(factors.shape)}"
        )
    if not bool((torch.isfinite(factors) & (factors >= 0)).all()):
        raise UserError("weights of tasks must be finite and not negative")
    return factors.detach()


def _check_finite(gradients: Sequence[Tensor]) -> None:
    """Raise before a gradient is used that is not finite.

    Which task is to blame cannot be told: a cotangent of zero times an infinite slope is
    no number in the rows of the others.
    """
    for gradient in gradients:
        if not bool(torch.isfinite(gradient).all()):
            raise GradientError(
                "the gradient of a task is not finite, so nothing was combined or written "
                "to .grad; look for absurd labels, or lower the learning rate"
            )
