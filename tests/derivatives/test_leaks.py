"""A long run keeps memory flat: tensors, Python objects and resident memory.

Tensors that only C++ holds (a graph of operations that nobody frees) do not show among
Python's objects; they do in resident memory.
"""

import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psutil
import pytest
import torch
from ase.build import molecule

from gnnforce.backbones.painn import PaiNN
from gnnforce.derivatives.api import gradients
from gnnforce.derivatives.strategies import OF_MODELS, STRATEGIES
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

WARM_UP, QUICK, LONG = 10, 40, 1000
# A graph of operations of the model below is some 0.5 MiB.
ALLOWED_MIB = {QUICK: 6.0, LONG: 12.0}
RUNS = [QUICK, pytest.param(LONG, marks=pytest.mark.slow)]


class Alive(NamedTuple):
    """What is alive in this process."""

    tensors: int
    objects: int
    mib: float


def alive() -> Alive:
    """Count; what only cycles keep alive is freed first."""
    gc.collect()
    objects = gc.get_objects()
    tensors = sum(issubclass(type(one), torch.Tensor) for one in objects)
    return Alive(tensors, len(objects), psutil.Process().memory_info().rss / 2**20)


def assert_flat(run: Callable[[], object], times: int) -> None:
    """Raise when something grows with the number of calls."""
    for _ in range(WARM_UP):
        run()
    before = alive()
    for _ in range(times):
        run()
    after = alive()
    assert after.tensors <= before.tensors, (before, after)
    assert after.objects - before.objects < times, (before, after)
    assert after.mib - before.mib < ALLOWED_MIB[times], (before, after)


@pytest.fixture(scope="module", autouse=True)
def _others_objects_aside() -> Iterator[None]:
    """What other tests left is not looked at, which makes counting quick."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def case():
    """A model and a molecule, small, yet large enough for a leak to show."""
    backbone = PaiNN([1, 8], n_features=16, n_layers=2, n_radial=6)
    model = ForceField(backbone, [Head("energy", members=3, hidden=(8,))])
    return model, AtomGraph.from_atoms(molecule("H2O"), model.cutoff)


def evaluation(case, strategy: str, use: str) -> Callable[[], object]:
    """One evaluation: its result detached, differentiable and dropped, or trained on."""
    model, graph = case

    def run():
        model.zero_grad(set_to_none=True)
        out = model.predict(graph, strategy=strategy, create_graph=use != "detached")
        if use == "trained on":
            (out["forces"].square().sum() + out["energy"].sum()).backward()
            model.zero_grad(set_to_none=True)

    return run


@pytest.mark.parametrize("times", RUNS)
@pytest.mark.parametrize("use", ["detached", "dropped", "trained on"])
@pytest.mark.parametrize("strategy", [*OF_MODELS, "auto"])
def test_evaluations_of_a_model(case, strategy, use, times):
    assert_flat(evaluation(case, strategy, use), times)


@pytest.mark.parametrize("times", RUNS)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_gradients_of_anything(strategy, create_graph, times):
    x = torch.linspace(0.1, 1.0, 2000, requires_grad=True)

    def run():
        outputs = torch.stack([x.sin().sum(), (x * x.exp()).sum()])
        rows = gradients(outputs, x, strategy, create_graph=create_graph)
        if create_graph:
            rows.square().sum().backward()
            x.grad = None

    assert_flat(run, times)


@pytest.mark.parametrize("use", ["detached", "dropped", "trained on"])
@pytest.mark.parametrize("strategy", OF_MODELS)
def test_nothing_waits_for_the_garbage_collector(case, strategy, use):
    """Cycles would keep the tensors of many evaluations alive until it runs."""
    run = evaluation(case, strategy, use)

    def tensors() -> int:
        return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        first = tensors()
        for _ in range(5):
            run()
        assert tensors() <= first
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "leak",
    [
        lambda: torch.zeros(1),
        lambda: [[]],
        lambda: torch.ones(2**18).untyped_storage(),  # no tensor, 1 MiB
    ],
)
def test_the_check_finds_planted_leaks(case, leak):
    kept = []
    run = evaluation(case, "loop", "detached")
    with pytest.raises(AssertionError):
        assert_flat(lambda: (run(), kept.append(leak())), QUICK)


def test_the_check_finds_a_graph_that_is_kept(case):
    """By C++ alone: the result lives as long as a storage that no tensor owns does."""
    model, graph = case
    kept = []

    def run():
        out = model.predict(graph, strategy="loop", create_graph=True)
        kept.append(out["forces"].grad_fn)  # no tensor of Python's

    with pytest.raises(AssertionError):
        assert_flat(run, QUICK)
