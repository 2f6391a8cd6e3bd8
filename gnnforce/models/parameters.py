"""Gradients of a force field's energies with respect to its parameters."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from gnnforce.derivatives.cost import row_bytes
from gnnforce.derivatives.parameters import (
    call_with,
    fresh_leaves,
    parameter_gradients,
    pull_back_all,
)
from gnnforce.derivatives.splitting import memory_limit, rows_at_once
from gnnforce.errors import UserError, did_you_mean
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.split import split
from gnnforce.graph.views import edge_vectors
from gnnforce.models.derive import Request, workload
from gnnforce.models.force_field import ForceField
from gnnforce.models.leaves import check_cutoff, usable
from gnnforce.readouts.stack import group_of


def parameter_jacobian(
    model: ForceField,
    graph: AtomGraph,
    names: str | Sequence[str] | None = None,
    *,
    chunk: int | None = None,
    memory: float | str | None = None,
) -> dict[str, Tensor]:
    r"""Differentiate the energy of every output with respect to every parameter.

    .. math:: J^{(p)}_{ng} = \partial E_{ng} / \partial p

    The outputs are pulled back through the backbone together, without a loop over them;
    those of members, which one output each depends on, come from one pull-back. Parameters
    that are frozen have a gradient too: ``requires_grad`` says what is trained, not what
    an energy depends on. Works under ``no_grad``; ``.grad`` and ``requires_grad`` of the
    parameters are not touched.

    Args:
        model: The force field.
        graph: A graph or batch, on the model's device.
        names: Which parameters: names as in ``model.named_parameters()``, modules
            (``"backbone"`` stands for all parameters inside) or patterns
            (``"*.weight"``); all when None.
        chunk: Outputs to pull back at once; as many as ``memory`` allows when None. With
            1 they go one after the other, which every operation supports.
        memory: Limit for temporaries in bytes or as ``"2GiB"``; when None, the
            environment variable ``GNNFORCE_MEMORY``, else 2 GiB. The result is not
            counted in it: it has ``n_outputs * n_graphs`` times the size of the
            parameters asked for.

    Returns:
        In eV per unit of the parameter, in its dtype, ``{name: (n_outputs,
        *parameter.shape)}`` for a graph. For a batch (anything that
        :func:`gnnforce.batch` made, also of one graph) ``{name: (n_outputs, n_graphs,
        *parameter.shape)}``. Zeros where an output does not depend on a parameter.

    Raises:
        UserError: For a name that fits no parameter, a ``chunk`` below one, or an
            operation of the backbone without a rule for batched cotangents.
        ConfigError: For a limit that is no number of bytes.
        GeometryError: For a graph made for a smaller cutoff than the model's.
        UnknownElementError: For an element the model has not learned.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([1, 8], 16), [Head("energy", members=3)])
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
        >>> rows = parameter_jacobian(model, graph, "readouts")
        >>> {name: tuple(row.shape) for name, row in rows.items()}  # doctest: +ELLIPSIS
        {'readouts.perceptrons.0.weights.0': (3, 3, 16, 32), ...}
    """
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    if names is not None:
        chosen = matching_names([names] if isinstance(names, str) else names, parameters)
        parameters = {name: parameters[name] for name in parameters if name in chosen}
    memory_limit(memory)  # refuse now what is no number of bytes
    check_cutoff(graph, model.cutoff)
    # a cotangent of one graph would pass through all the others in vain
    parts = split(graph) if "batch" in graph else [graph]
    with torch.inference_mode(False), torch.enable_grad():
        rows = [_of_one(model, usable(part), parameters, chunk, memory) for part in parts]
    if "batch" not in graph:
        return rows[0]
    return {name: torch.stack([row[name] for row in rows], dim=1) for name in parameters}


def _of_one(
    model: ForceField,
    graph: AtomGraph,
    parameters: dict[str, Tensor],
    chunk: int | None,
    memory: float | str | None,
) -> dict[str, Tensor]:
    """Differentiate the energies of one structure."""
    leaves = fresh_leaves(parameters)
    vectors = edge_vectors(graph).detach().to(model.dtype)
    energy = call_with(model, leaves, graph, vectors).energy[:, 0]  # (n_outputs,)
    rows_of = member_rows(model)
    stacked = [name for name in leaves if name in rows_of]
    shared = {name: leaf for name, leaf in leaves.items() if name not in rows_of}
    found = {}
    if shared:
        if chunk is None:
            chunk = rows_within(model, graph, shared, memory)
        found = parameter_gradients(energy, shared, chunk=chunk, keep=bool(stacked))
    # each member is the parameter of one output: the slope of the sum is that of its own
    ones = torch.ones_like(energy)[None]
    own = pull_back_all(energy, [leaves[name] for name in stacked], ones, chunk)
    for name, slopes in zip(stacked, own, strict=True):
        row = slopes.new_zeros(len(energy), *slopes.shape[1:])
        members = torch.arange(slopes.shape[1], device=row.device)
        row[rows_of[name], members] = slopes[0]
        found[name] = row
    return {name: found[name] for name in leaves}


def member_rows(model: ForceField) -> dict[str, Tensor]:
    """Return which output each member is, for parameters that stack members.

    Returns:
        By name of the parameter the output of each entry along its first axis, int64,
        shape ``(n_members,)``.
    """
    rows = torch.arange(model.n_outputs, device=model.device)
    result = {}
    for number, group in enumerate(model.readouts.groups):
        heads = [head.name for head in model.heads if group_of(head) == group]
        members = torch.cat([rows[model.outputs.slice(name)] for name in heads])
        stack = model.readouts.perceptrons[number]
        for name, _ in stack.named_parameters():
            result[f"readouts.perceptrons.{number}.{name}"] = members
    return result


def rows_within(
    model: ForceField,
    graph: AtomGraph,
    parameters: Mapping[str, Tensor],
    memory: float | str | None,
) -> int:
    """Return how many outputs to pull back at once within a limit of memory."""
    request = Request(("energy",), model.outputs, None, "batched", False, memory)
    size = row_bytes("batched", workload(model, graph, request, 0))
    size += sum(p.numel() * p.element_size() for p in parameters.values())
    return rows_at_once(model.n_outputs, size, memory_limit(memory))


def matching_names(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that patterns stand for, in their own order.

    Args:
        patterns: Names, beginnings of dotted names (``"backbone"``), or shell patterns
            with ``*``, ``?`` and ``[...]``; case matters.
        names: What there is.

    Raises:
        UserError: For a pattern that fits nothing; suggests the nearest name.

    Example:
        >>> matching_names(["a"], ["a.x", "a.y", "ab"])
        ['a.x', 'a.y']
    """
    every = list(names)
    found: set[str] = set()
    for pattern in patterns:
        own = {name for name in every if fits(pattern, name)}
        if not own:
            raise UserError(f"no parameter fits {pattern!r}." + nearest(pattern, every))
        found |= own
    return [name for name in every if name in found]


def fits(pattern: str, name: str) -> bool:
    """Tell whether a pattern stands for a dotted name."""
    inside = f"{pattern.rstrip('.')}."
    return name.startswith(inside) or fnmatchcase(name, pattern)


def nearest(pattern: str, names: Sequence[str]) -> str:
    """Suggest the nearest name or module, or list the modules, for an error message."""
    modules = [
        ".".join(name.split(".")[:depth])
        for name in names
        for depth in range(1, name.count(".") + 1)
    ]
    near = did_you_mean(pattern, [*modules, *names])
    tops = dict.fromkeys(name.split(".")[0] for name in names)
    return near or f" There are {', '.join(f'{top}.*' for top in tops)}"
