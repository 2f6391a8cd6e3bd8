"""What every backbone is, and the message-passing layer that they share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.nn.embedding import ElementTable
from gnnforce.nn.mlp import MLP
from gnnforce.ops.recompute import is_recomputing, recomputed
from gnnforce.ops.scatter import gather, one_cotangent, scatter_sum

BACKBONES: dict[str, type["Backbone"]] = {}


class Backbone(nn.Module, ABC):
    """Turns a graph into invariant features of every atom.

    A subclass is final, calls ``super().__init__`` and implements :meth:`forward`. Two
    rules make forces, stress and batching come out right:

    - positions enter only through ``vectors``; ``graph.positions`` is not read;
    - an edge's influence vanishes smoothly as its length reaches ``cutoff``.

    A subclass is registered under its class name, so that a saved model finds it. One
    that reads ``graph.charge`` or ``graph.spin_multiplicity`` names them in the class
    attribute ``conditioned_on``, so that a calculator notices when they change. One whose
    layers run on the aggregation primitive inside :func:`gnnforce.ops.mode.chained` says so
    with ``chained = True`` and has the strategy ``"chain"``. One that calls its layers through
    :meth:`layer` says so with ``layered = True`` and has activation checkpointing.

    Args:
        elements: Atomic numbers of the training set.
        n_features: Number of features of every atom.
        cutoff: Radius of the neighbor list in Angstrom.

    Raises:
        UserError: For sizes or a cutoff that are not positive.
    """

    conditioned_on: ClassVar[tuple[str, ...]] = ()
    chained: ClassVar[bool] = False
    layered: ClassVar[bool] = False
    _checkpointing = False

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        """Register the architecture by name."""
        super().__init_subclass__(**kwargs)
        BACKBONES[cls.__name__] = cls

    def __init__(self, elements: list[int], n_features: int, cutoff: float) -> None:
        super().__init__()
        if not (cutoff > 0 and cutoff < float("inf")):
            raise UserError(f"cutoff must be a positive number, not {cutoff}")
        if n_features < 1:
            raise UserError(f"n_features must be at least 1, not {n_features}")
        self.elements = list(ElementTable(elements).elements)
        self.n_features = int(n_features)
        self.cutoff = float(cutoff)

    @abstractmethod
    def forward(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Compute node features.

        Args:
            graph: A graph or batch; atoms without edges and empty graphs may occur.
            vectors: Edge vectors in Angstrom, shape ``(n_edges, 3)``.

        Returns:
            Invariant features, shape ``(n_atoms, n_features)``.
        """

    def can_chain(self) -> bool:
        """Tell whether the backbone runs on the primitives now.

        Not while hooks watch one of its layers, which the primitives would pass by, nor
        with a layer of a perceptron replaced by another kind, nor under autocast, which
        would mix precisions inside of them.
        """
        if not self.chained or torch.is_autocast_enabled("cpu"):
            return False
        if torch.is_autocast_enabled("cuda"):
            return False
        modules: list[nn.Module] = [self]
        while modules:  # a tenth of the time of walking by self.modules()
            module = modules.pop()
            if module._forward_hooks or module._forward_pre_hooks:  # noqa: SLF001
                return False
            if isinstance(module, Interaction) and module.watched:
                return False
            if isinstance(module, MLP) and not module.is_plain():
                return False
            modules += module.children()
        return True

    @property
    def checkpointing(self) -> bool:
        """Whether training keeps only the inputs of layers, and computes the rest again.

        This is for systems whose graph does not fit into memory: with ``predict(...,
        create_graph=True)`` every layer is evaluated once more for the forces and twice
        more for the gradients of a loss on them. Results are the same; the strategy is the
        loop. Nothing else changes, and model files do not keep the setting.

        Raises:
            UserError: When it is switched on for a backbone without ``layered``.

        Example:
            >>> from gnnforce.backbones.painn import PaiNN
            >>> backbone = PaiNN([1, 8])
            >>> backbone.checkpointing = True
        """
        return self._checkpointing

    @checkpointing.setter
    def checkpointing(self, value: bool) -> None:
        if value and not self.layered:
            raise UserError(
                f"{type(self).__name__} has no activation checkpointing: let its forward "
                "call the layers through self.layer(...), and set layered = True"
            )
        self._checkpointing = bool(value)

    @staticmethod
    def layer(
        run: Callable[..., tuple[Tensor, ...]],
        parts: list[nn.Module],
        *inputs: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Call a layer, in a way that keeps its inputs only where that is wanted.

        Args:
            run: Maps the inputs to a tuple of tensors and draws no random numbers.
            parts: The modules whose parameters it uses.
            inputs: Tensors that depend on positions or parameters.
        """
        if not (is_recomputing() and torch.is_grad_enabled()):
            return run(*inputs)

        def plain(*inputs: Tensor | None) -> tuple[Tensor, ...]:
            with one_cotangent():  # also where it is computed again, in whatever thread
                return run(*inputs)

        parameters = [one for part in parts for one in part.parameters()]
        return recomputed(plain, *inputs, parameters=parameters)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, to save and rebuild the backbone."""
        return {
            "elements": self.elements,
            "n_features": self.n_features,
            "cutoff": self.cutoff,
        }


class Interaction(MessagePassing):  # type: ignore[misc]  # PyG carries no types
    """A message-passing layer: ``message`` defines it, a sum over edges collects it.

    With ``readable = True`` the layer runs through PyG's ``propagate``, hooks and
    explainers included; otherwise it calls ``message`` with the gathered rows and sums
    with :func:`~gnnforce.ops.scatter.scatter_sum`, which gives the same numbers without
    PyG's overhead and with fast batched derivatives.
    """

    readable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def collect(
        self,
        graph: AtomGraph,
        nodes: Mapping[str, Tensor | None],
        edges: dict[str, Tensor],
    ) -> tuple[Tensor, ...]:
        """Sum the messages that reach every atom.

        Args:
            graph: The graph or batch.
            nodes: Rows of atoms by name, or None; ``message`` gets ``x`` as ``x_j``, the
                rows of the source of every edge.
            edges: Further arguments of ``message``, one row an edge.

        Returns:
            One tensor for each that ``message`` returns, ``(n_atoms, ...)``.
        """
        if self.watched:
            size = (graph.n_atoms, graph.n_atoms)
            result: tuple[Tensor, ...] = self.propagate(
                graph.edge_index, size=size, **nodes, **edges
            )
            return result
        source, target = graph.edge_index
        rows = {
            f"{name}_j": None if values is None else gather(values, source)
            for name, values in nodes.items()
        }
        messages = self.message(**rows, **edges)
        return self.aggregate(messages, target, dim_size=graph.n_atoms)

    def aggregate(
        self,
        inputs: tuple[Tensor, ...],
        index: Tensor,
        ptr: Optional[Tensor] = None,  # noqa: ARG002, UP045  (PyG reads name and type)
        dim_size: Optional[int] = None,  # noqa: UP045
    ) -> tuple[Tensor, ...]:
        """Sum every tensor of messages over the edges of an atom."""
        assert dim_size is not None
        return tuple(scatter_sum(values, index, dim_size) for values in inputs)

    @property
    def watched(self) -> bool:
        """Whether ``propagate`` must run: for hooks, explainers or ``readable``."""
        hooks = (
            self._propagate_forward_pre_hooks,
            self._propagate_forward_hooks,
            self._message_forward_pre_hooks,
            self._message_forward_hooks,
            self._aggregate_forward_pre_hooks,
            self._aggregate_forward_hooks,
        )
        return self.readable or bool(self.explain) or any(map(len, hooks))


def edge_lengths(vectors: Tensor) -> Tensor:
    """Return the length of every vector, shape ``(n_edges,)``."""
    return torch.linalg.vector_norm(vectors, dim=-1)
