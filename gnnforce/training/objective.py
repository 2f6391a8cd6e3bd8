"""The loss of a batch: energies of every output, derivatives of a few."""

from typing import NamedTuple

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.models.predictions import Predictions
from gnnforce.readouts.head import OutputTable
from gnnforce.training.batches import Process
from gnnforce.training.losses import (
    ErrorFunction,
    energy_loss,
    label_sums,
    loss_coefficients,
    weighted_loss,
)
from gnnforce.training.members import Draws, draw_outputs, every_output, poisson_weights
from gnnforce.training.metrics import LABELED, atom_counts
from gnnforce.training.sections import OptimConfig, WeightsConfig


class Losses(NamedTuple):
    """Losses of a batch, scalars; a quantity that was not computed is zero."""

    total: Tensor
    energy: Tensor
    forces: Tensor
    stress: Tensor


class Evaluated(NamedTuple):
    """What the losses of a batch are made of.

    Attributes:
        batch: The batch.
        out: Predictions: energies of every output, derivatives of the draws.
        coefficients: What multiplies the errors by quantity, ``(n_outputs, n_graphs)``.
        draws: Outputs whose derivatives are trained, or None.
        weights: Weights of the losses by quantity.
    """

    batch: AtomGraph
    out: Predictions
    coefficients: dict[str, Tensor]
    draws: Draws | None
    weights: dict[str, float]


class Objective:
    r"""Computes the loss of a batch.

    Energies of all outputs come from one forward pass, so the energy loss covers every
    member. A derivative of an output costs a pull-back, so for every graph a few outputs
    are drawn in proportion to their share of the loss, and one pull-back gives the forces
    of another output in every graph. The expectation over the draws is the loss of all
    outputs, and so is that of its gradient.

    Args:
        outputs: The outputs of the model.
        options: How it is trained.
        seed: Of the run.
        quantities: What has labels: out of ``energy``, ``forces``, ``stress``.
        process: Which of several processes this is; denominators are summed over all.
    """

    def __init__(
        self,
        outputs: OutputTable,
        options: OptimConfig,
        seed: int,
        quantities: tuple[str, ...],
        process: Process = Process(),  # noqa: B008  (frozen)
    ) -> None:
        self.quantities = quantities
        self.seed = seed
        self.process = process
        self.derivative_members = options.derivative_members
        self.bootstrap = options.bootstrap == "poisson"
        self.functions = {
            name: ErrorFunction(options.loss, getattr(options.huber, name))
            for name in LABELED
        }
        sizes = [head.members for head in outputs.heads]
        numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
        self.rows = torch.tensor(numbers)  # the head of every output
        self.members = torch.tensor(outputs.member_of)
        self.sizes = torch.tensor(sizes, dtype=torch.float64)[self.rows]
        given = {} if options.multitask is None else options.multitask.weights
        shares = [given.get(name, 1.0) for name in outputs.names]
        self.head_weights = torch.tensor(shares, dtype=torch.float64)[self.rows]

    def __call__(
        self, model: ForceField, batch: AtomGraph, step: int, weights: WeightsConfig
    ) -> Losses:
        """Compute the loss.

        Args:
            model: The model.
            batch: Batch with label fields, on the model's device.
            step: Number of optimizer steps done; chooses the draws.
            weights: Weights of the losses at this point of the run.

        Returns:
            The losses, differentiable; several processes add up to the whole.
        """
        parts = self._evaluate(model, batch, step, weights)
        return self._losses(parts, parts.coefficients)

    def by_head(
        self, model: ForceField, batch: AtomGraph, step: int, weights: WeightsConfig
    ) -> tuple[Losses, Tensor]:
        """Compute the loss and what each head has of it; arguments as for a call.

        Returns:
            The losses, and the share of every head in the total, ``(n_heads,)``; exactly
            zero, as is its gradient, for a head without a label in the batch.
        """
        parts = self._evaluate(model, batch, step, weights)
        totals = []
        for head in range(len(model.heads)):
            own = (self.rows == head)[:, None]
            coefficients = {name: c * own for name, c in parts.coefficients.items()}
            totals.append(self._losses(parts, coefficients).total)
        return self._losses(parts, parts.coefficients), torch.stack(totals)

    def _evaluate(
        self, model: ForceField, batch: AtomGraph, step: int, weights: WeightsConfig
    ) -> Evaluated:
        """Run the model on a batch."""
        self._move(batch.numbers.device)
        used = [name for name in self.quantities if getattr(weights, name) > 0]
        coefficients, shares = self._coefficients(batch, used, weights)
        names = [name for name in used if name != "energy"]
        draws, cotangents = None, None
        if names:
            draws = self._draw(shares, batch, step)
            cotangents = draws.cotangents(len(self.rows))
        out = model.predict(
            batch, ["energy", *names], create_graph=True, weights=cotangents
        )
        factors = {name: float(getattr(weights, name)) for name in used}
        return Evaluated(batch, out, coefficients, draws, factors)

    def _losses(self, parts: Evaluated, coefficients: dict[str, Tensor]) -> Losses:
        """Sum errors times coefficients, which may be those of some outputs."""
        zero = parts.out["energy"].new_zeros(())
        terms = dict.fromkeys(LABELED, zero)
        for name, own in coefficients.items():
            terms[name] = (
                self._energy(parts.out, parts.batch, own)
                if name == "energy"
                else self._derivative(parts, own, name)
            )
        total = sum((w * terms[name] for name, w in parts.weights.items()), zero)
        return Losses(total, **terms)

    def _move(self, device: torch.device) -> None:
        if self.rows.device != device:
            self.rows = self.rows.to(device)
            self.members = self.members.to(device)
            self.sizes = self.sizes.to(device)
            self.head_weights = self.head_weights.to(device)

    def _coefficients(
        self, batch: AtomGraph, used: list[str], weights: WeightsConfig
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return what multiplies the errors, and the shares that outputs are drawn by."""
        counts = {name: label_counts(batch, name) for name in used}
        frame_weight = batch["frame_weight"].double()
        sums = {name: label_sums(counts[name], frame_weight) for name in used}
        sums = self._over_processes(sums)
        shape = (len(self.rows), batch.n_graphs)
        seen = torch.ones(shape, dtype=torch.float64, device=self.rows.device)
        if self.bootstrap:
            drawn = poisson_weights(batch["frame_id"], self.members, self.seed)
            seen = torch.where(self.sizes[:, None] > 1, drawn, seen)
        member_share = seen * self.head_weights[:, None] / self.sizes[:, None]
        coefficients = {
            name: loss_coefficients(
                counts[name], sums[name], frame_weight, member_share, self.rows
            )
            for name in used
        }
        shares = torch.zeros(shape, dtype=torch.float64, device=self.rows.device)
        for name in used:
            if name != "energy":
                rows = counts[name].index_select(0, self.rows)
                shares = shares + getattr(weights, name) * coefficients[name] * rows
        return coefficients, shares

    def _over_processes(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.process.count == 1 or not sums:
            return sums
        stacked = torch.stack(list(sums.values()))
        torch.distributed.all_reduce(stacked)
        return dict(zip(sums, stacked.unbind(), strict=True))

    def _draw(self, shares: Tensor, batch: AtomGraph, step: int) -> Draws:
        n_draws = self.derivative_members
        if n_draws == "all" or n_draws >= len(self.rows):
            return every_output(shares)
        frame_ids = batch["frame_id"]
        return draw_outputs(
            shares, n_draws, seed=self.seed, step=step, frame_ids=frame_ids
        )

    def _energy(self, out: Predictions, batch: AtomGraph, coefficients: Tensor) -> Tensor:
        labels = batch["energy_labels"].double().T.index_select(0, self.rows)
        sizes, function = atom_counts(batch), self.functions["energy"]
        return energy_loss(out["energy"], labels, coefficients, sizes, function)

    def _derivative(self, parts: Evaluated, coefficients: Tensor, name: str) -> Tensor:
        """Compute the loss of drawn forces or stress."""
        batch, draws = parts.batch, parts.draws
        assert draws is not None
        heads = self.rows[draws.outputs]  # (n_draws, n_graphs)
        factors = coefficients.gather(0, draws.outputs) * draws.factors
        if name == "forces":
            heads, factors = heads[:, batch.graph_index], factors[:, batch.graph_index]
        places = torch.arange(heads.shape[1], device=heads.device).expand(heads.shape)
        labels = batch[f"{name}_labels"].double()[places, heads]
        factors = factors * batch[f"{name}_mask"][places, heads]
        predicted = parts.out[name].double()  # (n_draws, n_rows, ...)
        factors = factors.reshape(*factors.shape, *[1] * (predicted.dim() - 2))
        factors = factors.expand(predicted.shape)
        return weighted_loss(predicted, labels, factors, self.functions[name])


def label_counts(batch: AtomGraph, quantity: str) -> Tensor:
    """Count labeled numbers of every head and graph.

    Args:
        batch: Batch with label fields.
        quantity: ``energy``, ``forces`` (three an atom) or ``stress`` (nine).

    Returns:
        Float64, shape ``(n_heads, n_graphs)``.
    """
    mask = batch[f"{quantity}_mask"].double()
    if quantity == "energy":
        return mask.T
    if quantity == "stress":
        return 9 * mask.T
    zeros = mask.new_zeros(batch.n_graphs, mask.shape[1])
    index = batch.graph_index[:, None].expand(mask.shape)
    return 3 * zeros.scatter_add(0, index, mask).T
