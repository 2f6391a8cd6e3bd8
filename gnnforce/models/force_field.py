"""The force field: one backbone, many heads, and the derivatives of all of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnforce.backbones.base import Backbone
from gnnforce.errors import StressError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import has_stress
from gnnforce.models.combinations import Weights
from gnnforce.models.derive import Request, evaluate
from gnnforce.models.leaves import check_cutoff, usable, with_isolated_atoms
from gnnforce.models.predictions import Predictions
from gnnforce.quantities import QUANTITIES, check_quantities
from gnnforce.readouts.head import Head, OutputTable
from gnnforce.readouts.repulsion import ZBLRepulsion
from gnnforce.readouts.stack import Features, HeadStack, Outputs


class ForceField(nn.Module):
    """Energies, forces and stress of many outputs on one message-passing backbone.

    Args:
        backbone: Turns a graph into node features.
        heads: What is read out; see :class:`~gnnforce.readouts.head.Head`.
        repulsion: Add the ZBL repulsion of nuclei to every ``node_sum`` head.
        metadata: Plain values (text, numbers, lists, dicts) kept in the model file.

    Attributes:
        outputs: Which head and member each output index is.
        metadata: Provenance of the model.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.painn import PaiNN
        >>> model = ForceField(PaiNN([1, 8]), [Head("energy", members=4)])
        >>> graph = AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
        >>> model.predict(graph, ["energy", "forces"])["forces"].shape
        torch.Size([4, 3, 3])
    """

    def __init__(
        self,
        backbone: Backbone,
        heads: Sequence[Head],
        *,
        repulsion: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.readouts = HeadStack(tuple(heads), backbone.elements, backbone.n_features)
        self.repulsion = ZBLRepulsion(cutoff=backbone.cutoff) if repulsion else None
        self.metadata: dict[str, Any] = dict(metadata or {})

    # What the model is ----------------------------------------------------------------

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads, in the order of the outputs."""
        return self.outputs.heads

    @property
    def head_names(self) -> list[str]:
        """The names of the heads, in the order of the outputs."""
        return list(self.outputs.names)

    @property
    def outputs(self) -> OutputTable:
        """Which head and member each output index is."""
        return self.readouts.outputs

    @property
    def n_outputs(self) -> int:
        """Number of outputs: members of all heads together."""
        return self.outputs.n_outputs

    @property
    def elements(self) -> list[int]:
        """Atomic numbers the model knows."""
        return self.backbone.elements

    @property
    def cutoff(self) -> float:
        """Radius of the neighbor list in Angstrom."""
        return self.backbone.cutoff

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the network."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def set_references(self, table: Mapping[str, Mapping[int, float]]) -> None:
        """Set energies of isolated atoms in eV, ``{head: {atomic number: E0}}``."""
        self.readouts.references.set_energies(table)

    def set_scales(self, table: Mapping[str, float | Mapping[int, float]]) -> None:
        """Set what multiplies the network, in eV, ``{head: scale}``."""
        self.readouts.references.set_scales(table)

    def references(self) -> dict[str, dict[int, float]]:
        """Return energies of isolated atoms, ``{head: {atomic number: E0}}``."""
        return self.readouts.references.as_dict("energies")

    def scales(self) -> dict[str, dict[int, float]]:
        """Return scales, ``{head: {atomic number: scale}}``."""
        return self.readouts.references.as_dict("scales")

    # What the model does --------------------------------------------------------------

    def forward(
        self,
        graph: AtomGraph,
        vectors: Tensor,
        heads: OutputTable | None = None,
        *,
        frozen: bool = False,
    ) -> Outputs:
        """Compute energies from edge vectors, all heads in one pass.

        Args:
            graph: A graph or batch.
            vectors: Edge vectors in Angstrom in the model's dtype, ``(n_edges, 3)``.
            heads: Which heads; all when None.
            frozen: Derivatives with respect to parameters are not wanted, which saves
                some work; those with respect to ``vectors`` are the same.

        Returns:
            Energies per graph and per atom, float64.
        """
        rows = self.node_rows(graph, vectors)
        of_atoms, of_isolated = rows.split([graph.n_atoms, len(self.elements)])
        result: Outputs = self.readouts(
            Features(of_atoms, of_isolated, frozen),
            graph,
            self.repulsion_energy(graph, vectors),
            self.outputs if heads is None else heads,
        )
        return result

    def node_rows(self, graph: AtomGraph, vectors: Tensor) -> Tensor:
        """Run the backbone on the atoms and on one isolated atom of every element.

        Returns:
            Features, shape ``(n_atoms + n_elements, n_features)``.
        """
        rows: Tensor = self.backbone(with_isolated_atoms(graph, self.elements), vectors)
        return rows

    def repulsion_energy(self, graph: AtomGraph, vectors: Tensor) -> Tensor | None:
        """Return the repulsion of every atom in eV, ``(n_atoms,)``, or None without."""
        if self.repulsion is None:
            return None
        energy: Tensor = self.repulsion(graph, torch.linalg.vector_norm(vectors, dim=-1))
        return energy

    def predict(  # noqa: PLR0913  (what a user may choose, all by name)
        self,
        graph: AtomGraph,
        wanted: Sequence[str] = ("energy", "forces"),
        *,
        strategy: str = "auto",
        create_graph: bool = False,
        outputs_last: bool = False,
        heads: Sequence[str] | None = None,
        weights: Weights | None = None,
        memory: float | str | None = None,
    ) -> Predictions:
        r"""Compute the wanted quantities of every output.

        Works inside ``no_grad`` and ``inference_mode``, in training and evaluation mode.
        One forward pass; forces and stress come from the same pull-backs.

        Args:
            graph: A graph or batch, on the model's device.
            wanted: Names out of ``energy``, ``energies``, ``forces``, ``stress`` and
                ``virial``.
            strategy: How derivatives are taken: ``"loop"``, ``"batched"``, ``"chain"``,
                ``"jacobian"``, ``"forward"``, or ``"auto"`` for the one of least estimated time;
                ``Predictions.choice`` says which it was, and why.
            create_graph: Keep the results differentiable, for training.
            outputs_last: Give tensors with the outputs as the last axis.
            heads: Names of the heads wanted; all when None.
            weights: Derivatives of the combinations :math:`E_c = \sum_n w_{cng}
                E_{ng}` instead of every output, shape ``(n_combinations, n_outputs,
                n_graphs)``. One combination costs one pull-back and may weigh another
                output in every graph. Energies are still those of every output;
                stress rows of graphs without a stress are zero. Also what
                :func:`~gnnforce.models.combinations.mean_of`, ``difference_of`` and
                ``deviation_of`` return, or a list of these.
            memory: Limit for temporaries of the derivatives, in bytes or as ``"2GiB"``;
                outputs go through the backbone in pieces that fit. When None, the
                environment variable ``GNNFORCE_MEMORY``, else 2 GiB. Results do not
                depend on it; see :func:`~gnnforce.derivatives.splitting.memory_limit`
                for what it counts.

        Returns:
            ``energy`` (n_outputs, n_graphs) in eV, float64; ``energies`` (n_outputs,
            n_atoms); ``forces`` (n_outputs, n_atoms, 3) in eV/Angstrom; ``stress`` and
            ``virial`` (n_outputs, n_graphs, 3, 3) in eV/Angstrom^3 and eV.

        Raises:
            UserError: For a quantity, head or strategy that does not exist, weights of
                another shape, a strategy for which an operation of the backbone has no
                rule, or a memory limit that is not a number of bytes.
            GeometryError: For a graph made for a smaller cutoff than the model's.
            StressError: When a stress is asked of a graph that has none.
            UnknownElementError: For an element the model has not learned.
        """
        names = check_quantities(wanted)
        chosen = self.outputs if heads is None else self.outputs.select(list(heads))
        self._refuse(graph, names, chosen, lenient=weights is not None)
        request = Request(names, chosen, weights, strategy, create_graph, memory)
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(request.derivatives or create_graph),
        ):
            values, choice = evaluate(self, usable(graph), request)
        if not create_graph:
            values = {name: value.detach() for name, value in values.items()}
        return Predictions(
            {name: values[name] for name in names},
            chosen,
            choice.used,
            outputs_last=outputs_last,
            combined=weights is not None,
            choice=choice,
        )

    def _refuse(
        self,
        graph: AtomGraph,
        names: tuple[str, ...],
        chosen: OutputTable,
        *,
        lenient: bool,
    ) -> None:
        """Raise for requests that have no answer."""
        check_cutoff(graph, self.cutoff)
        if "energies" in names:
            for head in chosen.heads:
                if head.kind != "node_sum":
                    raise UserError(
                        f"head {head.name!r} of kind {head.kind!r} has no energies of "
                        "atoms; ask for energy, or name the node_sum heads"
                    )
        if lenient or not any(QUANTITIES[name].needs_cell for name in names):
            return
        exists = has_stress(graph)
        if exists.device.type != "cpu":
            torch._assert_async(exists.all())  # noqa: SLF001  (looking would wait)
        elif not bool(exists.all()):
            number = int((~exists).int().argmax())
            raise StressError(
                f"graph {number} has no stress: it needs a periodic direction and a cell "
                f"with a volume, but pbc is {graph.pbc[number].numpy().tolist()}"
            )

    def save(self, path: str | Path) -> None:
        """Write the model to one file; read it with :func:`gnnforce.load`."""
        from gnnforce.models.checkpoint import save  # noqa: PLC0415  (cycle)

        save(self, path)
