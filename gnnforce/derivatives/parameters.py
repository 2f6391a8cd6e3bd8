"""Gradients of many outputs with respect to named tensors, such as parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnforce.errors import UserError


def parameter_gradients(
    outputs: Tensor,
    parameters: Mapping[str, Tensor],
    *,
    chunk: int | None = None,
    keep: bool = False,
) -> dict[str, Tensor]:
    r"""Differentiate every output with respect to every parameter, of anybody's model.

    .. math:: J^{(p)}_{n} = \partial y_n / \partial p

    All outputs are pulled back together. ``torch.autograd.grad(outputs.unbind(), p)``
    gives the sum over the outputs instead, as does any cotangent of ones. Nothing is
    written to ``.grad``.

    Args:
        outputs: ``y``, any shape; usually ``(n_outputs,)``.
        parameters: Tensors that the outputs were computed from, by name; for example
            ``dict(model.named_parameters())``.
        chunk: Outputs to pull back at once; all when None. Bounds the memory. With 1
            they go one after the other, which every operation supports.
        keep: Keep the graph of the outputs, for another derivative.

    Returns:
        ``{name: (*outputs.shape, *parameter.shape)}``; zeros where an output does not
        depend on a parameter.

    Raises:
        UserError: When the outputs were computed without a gradient or hold whole
            numbers, a parameter does not require a gradient, ``chunk`` is below one, or
            an operation has no rule for batched cotangents.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> y = net(torch.ones(4))
        >>> rows = parameter_gradients(y, dict(net.named_parameters()))
        >>> [tuple(row.shape) for row in rows.values()]
        [(2, 5, 4), (2, 5), (2, 2, 5), (2, 2)]
    """
    if not outputs.requires_grad:
        raise UserError(
            "outputs do not depend on anything that requires a gradient; were they "
            "computed under torch.no_grad()?"
        )
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            raise UserError(
                f"{name!r} does not require a gradient, so how the outputs depend on it "
                "was not recorded; leave it out, or call requires_grad_() on it before "
                "computing the outputs"
            )
    flat = outputs.reshape(-1)
    rows = pull_back_all(flat, list(parameters.values()), _units(flat), chunk, keep)
    return {
        name: row.reshape(outputs.shape + row.shape[1:])
        for name, row in zip(parameters, rows, strict=True)
    }


def pull_back_all(
    outputs: Tensor,
    inputs: Sequence[Tensor],
    cotangents: Tensor,
    chunk: int | None = None,
    keep: bool = False,
) -> list[Tensor]:
    r"""Contract many cotangents with the Jacobians of several inputs.

    .. math:: G^{(x)}_c = \sum_k w_{ck}\, \partial y_k / \partial x

    Args:
        outputs: ``y``, shape ``(n_outputs,)``.
        inputs: Tensors ``x`` that require a gradient.
        cotangents: ``w``, shape ``(n_cotangents, n_outputs)``.
        chunk: Cotangents to pull back at once; all when None. With 1 they go one after
            the other, which every operation supports.
        keep: Keep the graph of ``outputs``; it is freed by the last piece otherwise.

    Returns:
        For every input ``(n_cotangents, *x.shape)``, each with memory of its own.

    Raises:
        UserError: When ``chunk`` is below one, or an operation has no rule for batched
            cotangents.
    """
    if chunk is not None and chunk < 1:
        raise UserError(f"chunk must be at least 1, not {chunk}")
    n_rows = cotangents.shape[0]
    if n_rows == 0 or not inputs:
        return [x.new_zeros(n_rows, *x.shape) for x in inputs]
    pieces = cotangents.split(n_rows if chunk is None else chunk)
    found = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        found.append(_pull_back(outputs, inputs, piece, keep=keep or not last))
    return [
        # a row that no cotangent reaches is one zero seen many times: own it
        parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)
        for parts in zip(*found, strict=True)
    ]


def _pull_back(
    outputs: Tensor, inputs: Sequence[Tensor], cotangents: Tensor, *, keep: bool
) -> tuple[Tensor, ...]:
    def one(cotangent: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            outputs, inputs, cotangent, retain_graph=keep, materialize_grads=True
        )

    if len(cotangents) == 1:  # no rule is needed, and nothing gained by one
        return tuple(row[None] for row in one(cotangents[0]))
    try:
        rows: tuple[Tensor, ...] = torch.func.vmap(one)(cotangents)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        if "vmap" not in text:
            raise
        raise UserError(
            "an operation of this model has no rule for batched cotangents; take "
            "chunk=1, or give its autograd.Function generate_vmap_rule = True or a vmap "
            f"rule (PyTorch: {text[:200]})"
        ) from error
    return rows


def _units(outputs: Tensor) -> Tensor:
    return torch.eye(outputs.shape[0], dtype=outputs.dtype, device=outputs.device)


def fresh_leaves(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that share the parameters' memory and record their own gradients.

    The parameters themselves, frozen or not, and their ``.grad`` are not touched.
    """
    return {name: p.detach().requires_grad_() for name, p in parameters.items()}


def call_with(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    *args: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Call a module with some of its parameters replaced, for this call only.

    Example:
        >>> call_with(nn.Linear(1, 1), {"weight": torch.ones(1, 1)}, torch.ones(1)).shape
        torch.Size([1])
    """
    return torch.func.functional_call(module, dict(parameters), args, options)
