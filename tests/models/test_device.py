"""Every strategy computes on a device without waiting for it or copying to it.

Tensors on PyTorch's meta device have shapes and no numbers: whatever wants to look at one
raises, with or without a GPU. Copies between devices are refused on top. With a GPU the
same is asked of CUDA itself, and the numbers are compared.
"""

from contextlib import contextmanager

import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from torch.utils._python_dispatch import TorchDispatchMode

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

ARCHITECTURES = {"PaiNN": PaiNN, "SchNet": SchNet}
HEADS = [
    Head("sum", members=3),
    Head("mean", kind="node_mean"),
    Head("pool", members=2, kind="pooled", hidden=(4,)),
]
STRATEGIES = [*OF_MODELS, "auto"]
USES = ["prediction", "training", "some heads", "weights"]


class NoCopies(TorchDispatchMode):
    """Refuse operations that take tensors from one device to another.

    A tensor of one number that Python made is exempt: kernels take it as an argument.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        flat = torch.utils._pytree.tree_leaves((args, kwargs, result))
        given = [one for one in flat if isinstance(one, torch.Tensor)]
        devices = {one.device.type for one in given if one.dim() > 0}
        if len(devices) > 1:
            raise AssertionError(f"{func} goes from one device to another: {devices}")
        return result


def make(architecture: str, *, repulsion: bool = False) -> ForceField:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = ARCHITECTURES[architecture]([1, 6, 8, 14], n_features=8, n_layers=2)
        return ForceField(backbone, HEADS, repulsion=repulsion)


def molecules() -> AtomGraph:
    structures = [molecule("H2O"), Atoms("C"), molecule("CH4"), Atoms()]
    return batch([AtomGraph.from_atoms(atoms, 5.0) for atoms in structures])


def crystals() -> AtomGraph:
    structures = [bulk("Si"), bulk("Si", a=5.6)]
    for atoms in structures:
        atoms.rattle(0.1, seed=0)
    return batch([AtomGraph.from_atoms(atoms, 5.0) for atoms in structures])


def evaluate(model: ForceField, graph: AtomGraph, strategy: str, use: str):
    """Values and, in training, gradients of parameters, all still on the device."""
    options = {"strategy": strategy, "create_graph": use == "training"}
    if use == "some heads":
        options["heads"] = ["mean", "pool"]
    if use == "weights":
        device = graph.positions.device
        options["weights"] = torch.ones(2, 6, graph.n_graphs, device=device)
    wanted = ["energy", "forces"]
    if graph.n_atoms == 4:  # the crystals; looking at pbc would wait
        wanted.append("stress")
    out = model.predict(graph, wanted, **options)
    values = dict(out)
    if use == "training":
        model.zero_grad(set_to_none=True)
        (out["forces"].square().sum() + out["energy"].sum()).backward()
        named = model.named_parameters()
        values |= {name: one.grad for name, one in named if one.grad is not None}
    return values


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("architecture", "structures"), [("PaiNN", crystals), ("SchNet", molecules)]
)
def test_no_number_is_looked_at(architecture, structures, strategy, use):
    model = make(architecture).to("meta")
    here, there = structures(), structures().to("meta")
    evaluate(model, there, strategy, use)  # what is made once is made
    with NoCopies():
        found = evaluate(model, there, strategy, use)
    expected = evaluate(make(architecture), here, strategy, use)
    assert {name: value.shape for name, value in found.items()} == {
        name: value.shape for name, value in expected.items()
    }
    assert {value.device.type for value in found.values()} == {"meta"}
    assert ("stress" in found) == (structures is crystals)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x * x.sum().item(),
        lambda x: x * float(x[x > 0].sum()),
        lambda x: x if bool((x > 0).any()) else -x,
        lambda x: x.index_select(0, (x[:, 0] > 0).nonzero()[:, 0]),
        lambda x: x * torch.ones(8).to(x.device),
        lambda x: x * torch.tensor([2.0] * 8, device=x.device),
        lambda x: x.cpu().to(x.device),
    ],
)
def test_a_backbone_that_waits_is_caught(wrong, monkeypatch):
    forward = SchNet.forward
    monkeypatch.setattr(SchNet, "forward", lambda *args: wrong(forward(*args)))
    model = make("SchNet").to("meta")
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError)), NoCopies():
        evaluate(model, molecules().to("meta"), "loop", "prediction")


@contextmanager
def no_waiting():
    """Let CUDA raise when the host waits for it."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("structures", [molecules, crystals])
def test_cuda_never_waits_and_gives_the_numbers_of_the_cpu(
    architecture, structures, strategy, use, dtype
):
    expected = evaluate(make(architecture).to(dtype), structures(), "loop", use)
    model = make(architecture).to("cuda", dtype)
    graph = structures().to("cuda")
    evaluate(model, graph, strategy, use)  # libraries load, caches fill
    torch.cuda.synchronize()
    with no_waiting():
        found = evaluate(model, graph, strategy, use)
    torch.cuda.synchronize()
    limit = 1e-9 if dtype == torch.float64 else 2e-3
    assert set(found) == set(expected)
    for name, value in expected.items():
        size = float(value.abs().max())
        apart = float((found[name].cpu() - value).abs().max())
        assert apart <= limit * max(size, 1e-3), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_waiting_on_cuda_raises():
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="synchroniz"), no_waiting():
        x.sum().item()
