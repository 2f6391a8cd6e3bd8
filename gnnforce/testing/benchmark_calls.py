"""The two things that are measured: a prediction, and a training step on all forces."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.models.predictions import Predictions
from gnnforce.testing.benchmark_setup import Setup, batch_of, build, frames_of

WANTED = ("energy", "forces")


@dataclass(frozen=True)
class Call:
    """What is called.

    Attributes:
        n_outputs: Members of the one head.
        strategy: How derivatives are taken.
        training: A training step instead of a prediction.
    """

    n_outputs: int
    strategy: str
    training: bool = False


def predict(model: ForceField, graph: AtomGraph, strategy: str) -> Predictions:
    """Return energies and forces of all outputs."""
    return model.predict(graph, WANTED, strategy=strategy)


def training_step(model: ForceField, graph: AtomGraph, strategy: str) -> Predictions:
    r"""Differentiate a loss on energies and forces of all outputs.

    .. math:: L = \langle F_{nik}^2 \rangle + \langle (E_{ng} / n_g)^2 \rangle

    The targets are zero: what they are changes no cost. Gradients are added to ``grad``
    of the parameters after setting it to None.

    Returns:
        What was predicted, detached.
    """
    model.zero_grad(set_to_none=True)
    out = model.predict(graph, WANTED, strategy=strategy, create_graph=True)
    per_atom = out["energy"] * (graph.n_graphs / graph.n_atoms)
    loss = out["forces"].square().mean() + per_atom.square().mean()
    loss.backward()
    values = {name: value.detach() for name, value in out.items()}
    return Predictions(values, out.outputs, out.strategy, choice=out.choice)


def gradients_of(model: ForceField) -> dict[str, Tensor]:
    """Return copies of the gradients that a training step left, by parameter."""
    named = model.named_parameters()
    return {name: one.grad.clone() for name, one in named if one.grad is not None}


def call_of(
    setup: Setup, call: Call, *, small: bool = False
) -> Callable[[], Predictions]:
    """Build model and batch, and return the call to make.

    Args:
        setup: Backbone and structures.
        call: What to call.
        small: Use the first two atoms of the first structure only.
    """
    model, graph = build(setup, call.n_outputs)
    if small:
        atoms = frames_of(setup)[0][:2]
        atoms.pbc = False
        graph = batch_of([atoms], model.cutoff, setup.device)
    step = training_step if call.training else predict
    return lambda: step(model, graph, call.strategy)
