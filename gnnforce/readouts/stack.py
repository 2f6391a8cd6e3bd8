"""All heads of a model, evaluated together."""

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.nn.embedding import ElementTable
from gnnforce.nn.mlp import StackedMLP
from gnnforce.ops.scatter import gather, scatter_sum
from gnnforce.readouts.head import Head, OutputTable
from gnnforce.readouts.references import AtomicReferences


class Features(NamedTuple):
    """Node features of a batch and of one isolated atom an element.

    Attributes:
        atoms: Shape ``(n_atoms, n_features)``; or a copy for every chosen output,
            ``(n_outputs, n_atoms, n_features)``, so that one backward pass of the
            summed energies gives the slope of each output in its own copy.
        isolated: In the order of the model's elements, ``(n_elements, n_features)``.
        frozen: No derivative with respect to parameters is wanted, so what is said of
            isolated atoms is a constant: it does not depend on positions.
    """

    atoms: Tensor
    isolated: Tensor
    frozen: bool = False


class Outputs(NamedTuple):
    """Values of all outputs.

    Attributes:
        energy: In eV, float64, shape ``(n_outputs, n_graphs)``.
        energies: Share of every atom in eV, float64, ``(n_outputs, n_atoms)``;
            meaningful for ``node_sum`` heads, whose energy is its sum.
    """

    energy: Tensor
    energies: Tensor


class HeadGroup(NamedTuple):
    """Heads whose members share one stacked perceptron: equal shape, equal input."""

    pooled: bool
    hidden: tuple[int, ...]


class HeadStack(nn.Module):
    """Every head of a model; heads of equal shape are one batched matrix product.

    Args:
        heads: The heads, names unique.
        elements: Atomic numbers of the model.
        n_features: Length of the node features.
    """

    def __init__(
        self, heads: tuple[Head, ...], elements: list[int], n_features: int
    ) -> None:
        super().__init__()
        self.outputs = OutputTable(heads)
        self.elements = ElementTable(elements)
        self.references = AtomicReferences(heads, elements)
        self.groups: list[HeadGroup] = list(dict.fromkeys(map(group_of, heads)))
        self.perceptrons = nn.ModuleList(
            StackedMLP(
                sum(head.members for head in heads if group_of(head) == group),
                [n_features, *group.hidden, 1],
            )
            for group in self.groups
        )

    def forward(
        self,
        features: Features,
        graph: AtomGraph,
        shared: Tensor | None,
        chosen: OutputTable,
    ) -> Outputs:
        """Evaluate heads.

        Args:
            features: Node features, of atoms and of isolated atoms.
            graph: The graph or batch of the atoms.
            shared: Energy of every atom in eV that is the same for all ``node_sum``
                heads, shape ``(n_atoms,)``, or None.
            chosen: The heads to evaluate, in the model's order.

        Returns:
            Energies of the chosen outputs.
        """
        rows = self.elements(graph.numbers)  # (n_atoms,)
        energy: dict[str, Tensor] = {}
        energies: dict[str, Tensor] = {}
        for group, perceptron in zip(self.groups, self.perceptrons, strict=True):
            heads = [head for head in chosen.heads if group_of(head) == group]
            if not heads:
                continue
            members = self._members(group, heads)
            own = features_of(features, chosen, heads)
            if group.pooled:
                raw = pooled_outputs(perceptron, own, graph, rows, members)
            else:
                raw = node_outputs(perceptron, own, rows, members)
            for head, values in zip(
                heads, raw.split([head.members for head in heads], dim=1), strict=True
            ):
                energy[head.name], energies[head.name] = self._energy(
                    head, values, graph, rows, shared
                )
        return Outputs(
            torch.cat([energy[name] for name in chosen.names], dim=1).T,
            torch.cat([energies[name] for name in chosen.names], dim=1).T,
        )

    def of_pooled(
        self, pooled: Tensor, graph: AtomGraph, heads: tuple[Head, ...]
    ) -> Tensor:
        """Evaluate heads of kind ``pooled`` on summed features, a copy for each output.

        Args:
            pooled: Shape ``(n_outputs, n_graphs, n_features)``.
            graph: The graph or batch.
            heads: The heads, in the order of the copies.

        Returns:
            Energies in eV, ``(n_outputs, n_graphs)``.
        """
        rows = self.elements(graph.numbers)
        energy = []
        copies = pooled.split([head.members for head in heads])
        for head, own in zip(heads, copies, strict=True):
            group = group_of(head)
            perceptron = self.perceptrons[self.groups.index(group)]
            raw = pooled_values(perceptron, own, self._members(group, [head]))
            energy.append(self._energy(head, raw, graph, rows, None)[0])
        return torch.cat(energy, dim=1).T

    def linear_weights(self, head: Head) -> Tensor:
        """Return the weights of a head without hidden layers, ``(members, n_features)``."""
        group = group_of(head)
        perceptron = self.perceptrons[self.groups.index(group)]
        assert isinstance(perceptron, StackedMLP)
        weights = perceptron.weights[0][..., 0]  # (n_members, n_features)
        members = self._members(group, [head])
        return weights if members is None else weights.index_select(0, members)

    def _members(self, group: HeadGroup, heads: list[Head]) -> Tensor | None:
        """Rows of a group's stacked perceptron that belong to some heads."""
        every = [head for head in self.outputs.heads if group_of(head) == group]
        if heads == every:
            return None
        ends = list(accumulate(head.members for head in every))
        # made on the device: a list of numbers would be copied there, and waited for
        return torch.cat(
            [
                torch.arange(end - head.members, end, device=self.elements.rows.device)
                for head, end in zip(every, ends, strict=True)
                if head in heads
            ]
        )

    def _energy(
        self,
        head: Head,
        values: Tensor,
        graph: AtomGraph,
        rows: Tensor,
        shared: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Scale a head's raw values and add its references.

        Returns:
            Energies per graph ``(n_graphs, members)`` and per atom ``(n_atoms, members)``.
        """
        number = self.outputs.names.index(head.name)
        scale = self.references.scales[number].index_select(0, rows)  # (n_atoms,)
        e0 = self.references.energies[number].index_select(0, rows)[:, None]
        index, n_graphs = graph.graph_index, graph.n_graphs
        if head.kind == "pooled":
            mean_scale = mean_over_atoms(scale[:, None], graph)  # (n_graphs, 1)
            network = values.double() * mean_scale
            reference = scatter_sum(e0, index, n_graphs)
            share = network / atoms_per_graph(graph)
            return network + reference, e0 + share.index_select(0, index)
        atomic = values.double() * scale[:, None] + e0  # (n_atoms, members)
        if head.kind == "node_mean":
            return mean_over_atoms(atomic, graph), atomic
        if shared is not None:
            atomic = atomic + shared.double()[:, None]
        return scatter_sum(atomic, index, n_graphs), atomic


def group_of(head: Head) -> HeadGroup:
    """Return the group a head is evaluated in."""
    return HeadGroup(head.kind == "pooled", head.hidden)


def features_of(features: Features, chosen: OutputTable, heads: list[Head]) -> Features:
    """Return the copies that belong to some heads, or what all outputs share."""
    if features.atoms.dim() == 2:
        return features
    copies = [features.atoms[chosen.slice(head.name)] for head in heads]
    return features._replace(atoms=copies[0] if len(copies) == 1 else torch.cat(copies))


def node_outputs(
    perceptron: nn.Module, features: Features, rows: Tensor, members: Tensor | None
) -> Tensor:
    """Evaluate members on every atom, relative to the isolated atom.

    Returns:
        Shape ``(n_atoms, n_members)``.
    """
    if features.atoms.dim() == 3:
        of_atoms = perceptron(features.atoms, members)[..., 0].T
        of_isolated = perceptron(features.isolated, members)[..., 0].T
    else:
        both = torch.cat([features.atoms, features.isolated])
        values = perceptron(both, members)[..., 0].T  # (n_atoms + n_elements, n_members)
        of_atoms, of_isolated = values.split(
            [features.atoms.shape[0], len(features.isolated)]
        )
    if features.frozen:
        of_isolated = of_isolated.detach()
    result: Tensor = of_atoms - gather(of_isolated, rows)
    return result


def pooled_outputs(
    perceptron: nn.Module,
    features: Features,
    graph: AtomGraph,
    rows: Tensor,
    members: Tensor | None,
) -> Tensor:
    """Evaluate members on the summed features of every graph.

    Returns:
        Shape ``(n_graphs, n_members)``.
    """
    return pooled_values(perceptron, pooled_features(features, graph, rows), members)


def pooled_values(
    perceptron: nn.Module, pooled: Tensor, members: Tensor | None
) -> Tensor:
    """Evaluate members on summed features, relative to none.

    Returns:
        Shape ``(n_graphs, n_members)``.
    """
    nothing = torch.zeros_like(pooled[..., :1, :])
    values = perceptron(torch.cat([pooled, nothing], dim=-2), members)[..., 0].T
    result: Tensor = values[:-1] - values[-1:]
    return result


def pooled_features(features: Features, graph: AtomGraph, rows: Tensor) -> Tensor:
    """Sum features relative to isolated atoms, ``(..., n_graphs, n_features)``."""
    relative = features.atoms - gather(features.isolated, rows)
    by_atom = relative.movedim(-2, 0)  # (n_atoms, ..., n_features)
    summed = scatter_sum(by_atom, graph.graph_index, graph.n_graphs)
    return summed.movedim(0, -2)


def atoms_per_graph(graph: AtomGraph) -> Tensor:
    """Count atoms, at least one so that empty graphs divide; ``(n_graphs, 1)``."""
    ones = torch.ones(graph.n_atoms, 1, dtype=torch.float64, device=graph.numbers.device)
    return scatter_sum(ones, graph.graph_index, graph.n_graphs).clamp(min=1)


def mean_over_atoms(values: Tensor, graph: AtomGraph) -> Tensor:
    """Average rows of atoms over each graph, shape ``(n_graphs, ...)``."""
    total = scatter_sum(values, graph.graph_index, graph.n_graphs)
    return total / atoms_per_graph(graph)
