import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.errors import GeometryError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.models.smoothness import slope_penalty
from gnnforce.readouts.head import Head

CUTOFF = 4.0


def make(backbone=SchNet) -> ForceField:
    torch.manual_seed(2)
    heads = [Head("a", members=2), Head("b", kind="pooled")]
    return ForceField(backbone([1, 6, 14], 8, 2, cutoff=CUTOFF), heads).double()


def ends() -> tuple[list[Atoms], list[Atoms]]:
    first = [molecule("CH4"), bulk("Si", cubic=True), Atoms("H")]
    second = [atoms.copy() for atoms in first]
    for number, atoms in enumerate(second):
        atoms.rattle(0.1, seed=number)
    return first, second


def joined(structures) -> AtomGraph:
    return batch([AtomGraph.from_atoms(atoms, CUTOFF) for atoms in structures])


def by_hand(model, t, target):
    """One backward pass an output and structure, each structure alone."""
    rows = []
    for n in range(model.n_outputs):
        costs = []
        for part, one, other in zip(t.tolist(), *ends(), strict=True):
            atoms = one.copy()
            atoms.positions += part * (other.positions - one.positions)
            graph = AtomGraph.from_atoms(atoms, CUTOFF)
            out = model.predict(graph, ["forces"], strategy="loop", create_graph=True)
            norm = torch.linalg.vector_norm(out["forces"][n])
            costs.append((norm - target) ** 2)
        rows.append(torch.stack(costs).mean())
    return torch.stack(rows)


@pytest.mark.parametrize("backbone", [SchNet, PaiNN])
@pytest.mark.parametrize("strategy", ["loop", "batched", "jacobian", "auto"])
def test_equals_one_backward_per_output_and_structure(backbone, strategy):
    model, t = make(backbone), torch.tensor([0.3, 0.9, 0.5], dtype=torch.float64)
    first, second = map(joined, ends())
    got = slope_penalty(model, first, second, at=t, target=0.5, strategy=strategy)
    expected = by_hand(model, t, 0.5)
    assert got.shape == (3,)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=0)
    parameters = list(model.parameters())
    for n in range(3):
        options = {"retain_graph": True, "materialize_grads": True}
        ours = torch.autograd.grad(got[n], parameters, **options)
        theirs = torch.autograd.grad(expected[n], parameters, **options)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-12)


def test_training_with_it_makes_the_surface_flatter():
    model = make()
    first, second = map(joined, ends())
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    start = slope_penalty(model, first, second, at=generator).sum().item()
    for _ in range(20):
        optimizer.zero_grad()
        slope_penalty(model, first, second, at=generator).sum().backward()
        optimizer.step()
    assert slope_penalty(model, first, second, at=generator).sum().item() < 0.2 * start


def test_atoms_at_rest_have_a_finite_gradient():
    model = make()
    lone = joined([Atoms("H")])
    got = slope_penalty(model, lone, lone, at=torch.zeros(1), target=2.0)
    assert got.tolist() == [4.0] * 3
    got.sum().backward()
    for p in model.parameters():
        assert p.grad is None or bool((p.grad == 0).all())


def test_heads_and_evaluation():
    model, t = make(), torch.tensor([0.3, 0.9, 0.5])
    first, second = map(joined, ends())
    every = slope_penalty(model, first, second, at=t).detach()
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            got = slope_penalty(model, first, second, at=t, heads=["b"])
        assert not got.requires_grad
        torch.testing.assert_close(got, every[2:], rtol=1e-12, atol=0)


def test_float32():
    model, t = make().float(), torch.tensor([0.3, 0.9, 0.5])
    first, second = map(joined, ends())
    got = slope_penalty(model, first, second, at=t)
    expected = slope_penalty(model.double(), first, second, at=t)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=0)


def test_refused():
    model = make()
    first, second = map(joined, ends())
    t = torch.zeros(3)
    with pytest.raises(GeometryError, match="3 structures at one end and 1"):
        slope_penalty(model, first, joined([Atoms("H")]), at=t)
    with pytest.raises(UserError, match=r"shape \(3,\)"):
        slope_penalty(model, first, second, at=t[:1])
    with pytest.raises(UserError, match=">= 0, not -1"):
        slope_penalty(model, first, second, at=t, target=-1.0)
