import pytest
import torch
from ase import Atoms
from ase.build import molecule

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.batched import batched_pull_back
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements

HEADS = [
    Head("sum", members=3),
    Head("mean", kind="node_mean"),
    Head("pool", members=2, kind="pooled", hidden=(8, 8)),
]


@pytest.mark.usefixtures("no_slice_loops")
def test_the_fixture_catches_a_fallback():
    lengths = torch.tensor([1, 2])
    with pytest.raises(RuntimeError, match="allback"):
        torch.func.vmap(lambda x: torch.segment_reduce(x, "sum", lengths=lengths))(
            torch.ones(4, 3)
        )


@pytest.mark.usefixtures("no_slice_loops", "kernel")
@pytest.mark.parametrize("repulsion", [False, True])
@pytest.mark.parametrize("architecture", [SchNet, PaiNN])
@pytest.mark.parametrize("create_graph", [False, True])
def test_models_need_no_fallback_and_agree_with_the_loop(
    architecture, repulsion, create_graph
):
    torch.manual_seed(0)
    backbone = architecture([1, 6, 7, 8, 14], n_features=8, n_layers=2, cutoff=3.0)
    model = ForceField(backbone, HEADS, repulsion=repulsion).double()
    structures = [molecule("CH3OH"), Atoms("H"), Atoms(), five_elements(periodic=True)]
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    wanted = ["energy", "forces"]
    results = {
        strategy: model.predict(
            graph, wanted, strategy=strategy, create_graph=create_graph
        )
        for strategy in ("loop", "batched")
    }
    assert results["batched"].strategy == "batched"
    fast, slow = (results[name]["forces"] for name in ("batched", "loop"))
    scale = float(slow.detach().abs().max())
    assert scale > 1e-3
    assert (fast - slow).abs().max() < 1e-12 * scale
    if create_graph:
        parameters = list(model.parameters())
        by = [
            torch.autograd.grad((f**2).sum(), parameters, materialize_grads=True)
            for f in (fast, slow)
        ]
        for one, other in zip(*by, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12 * scale**2)


def test_every_output_has_its_own_gradient():
    """A cotangent of ones, or ``outputs.unbind()``, would give their sum."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    rows = batched_pull_back(torch.stack([x.sum(), x.prod()]), x, torch.eye(2), False)
    assert rows.tolist() == [[1.0, 1.0], [2.0, 1.0]]
