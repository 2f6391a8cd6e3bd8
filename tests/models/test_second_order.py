import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from torch import nn

import gnnforce as gf
from gnnforce.backbones.base import BACKBONES, Backbone
from gnnforce.errors import GeometryError, GradientError, UserError
from gnnforce.models.second_order import hessian, hessian_vector_product, symmetrized
from gnnforce.ops.cutoff import polynomial_envelope
from gnnforce.ops.scatter import gather, scatter_sum

ELEMENTS = [1, 6, 8, 14]


class Own(Backbone):
    """A backbone that knows nothing of primitives."""

    def __init__(self, elements, n_features=6, cutoff=4.0):
        super().__init__(elements, n_features, cutoff)
        self.embed = nn.Embedding(100, n_features)
        self.mix = nn.Sequential(nn.Linear(2 * n_features, n_features), nn.SiLU())

    def forward(self, graph, vectors):
        source, target = graph.edge_index
        h = self.embed(graph.numbers)
        r = vectors.norm(dim=1)
        messages = gather(h, source) * torch.cos(r)[:, None]
        messages = messages * polynomial_envelope(r, self.cutoff)[:, None]
        around = scatter_sum(messages, target, graph.n_atoms)
        return h + self.mix(torch.cat([h, torch.tanh(around)], dim=1))


BACKBONES.pop("Own")  # not for others


def make_model(architecture, members=2, **options):
    torch.manual_seed(3)
    backbone = architecture(elements=ELEMENTS, n_features=6, cutoff=4.0)
    heads = [gf.Head("energy", members=members), gf.Head("mean", kind="node_mean")]
    return gf.ForceField(backbone, heads, **options).double()


def methanol():
    atoms = molecule("CH3OH")
    atoms.rattle(0.05, seed=1)
    return atoms


def tiny_cell():
    atoms = bulk("Si", "diamond", 5.43)  # images of itself within the cutoff
    atoms.rattle(0.05, seed=2)
    return atoms


def differences(model, graph, step=2e-4, **options):
    """Fourth-order central differences of forces, ``(n_outputs, 3n, 3n)``."""
    rows = []
    for k in range(graph.positions.numel()):
        total = 0
        for shift, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            moved = graph.clone()
            moved.positions = graph.positions.clone()
            moved.positions.view(-1)[k] += shift * step
            out = model.predict(moved, ["forces"], strategy="loop", **options)
            total = total - weight * out["forces"].flatten(1) / (12 * step)
        rows.append(total)
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("architecture", [gf.PaiNN, gf.SchNet, Own])
@pytest.mark.parametrize("make", [methanol, tiny_cell])
def test_hessian_equals_differences_of_forces(architecture, make):
    model = make_model(architecture, repulsion=True)
    graph = gf.AtomGraph.from_atoms(make(), model.cutoff)
    matrix = hessian(model, graph)
    scale = matrix.abs().max()
    assert (matrix - differences(model, graph)).abs().max() < 1e-6 * scale
    assert torch.equal(matrix, matrix.mT)
    # all atoms together: no force changes
    together = torch.eye(3, dtype=torch.float64).repeat(graph.n_atoms, 1)
    assert (matrix @ together).abs().max() < 1e-10 * scale


def test_rows_are_symmetric_before_they_are_symmetrized():
    from gnnforce.models.second_order import recorded

    model = make_model(gf.PaiNN)
    graph = gf.AtomGraph.from_atoms(methanol(), model.cutoff)
    with recorded(model, graph, None, None, strained=True) as energies:
        matrix = energies.matrices(rows=7)
    assert (matrix - matrix.mT).abs().max() < 1e-10 * matrix.abs().max()


def test_memory_limit_heads_and_weights():
    model = make_model(gf.PaiNN)
    graph = gf.AtomGraph.from_atoms(methanol(), model.cutoff)
    every = hessian(model, graph)
    torch.testing.assert_close(hessian(model, graph, memory=1), every, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        hessian(model, graph, heads=["mean"]), every[2:], rtol=0, atol=1e-12
    )
    mean = hessian(model, graph, weights=gf.mean_of("energy"))
    torch.testing.assert_close(mean[0], every[:2].mean(dim=0), rtol=0, atol=1e-10)
    # of a combination that is not linear in the energies
    spread = hessian(model, graph, weights=gf.deviation_of("energy"))
    expected = differences(model, graph, weights=gf.deviation_of("energy"))
    assert (spread - expected).abs().max() < 1e-6 * spread.abs().max()


def test_product_with_a_direction():
    model = make_model(gf.PaiNN, repulsion=True)
    graph = gf.AtomGraph.from_atoms(methanol(), model.cutoff)
    v = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = hessian_vector_product(model, graph, v)
    expected = hessian(model, graph) @ v.view(-1)
    torch.testing.assert_close(found.flatten(1), expected, rtol=1e-10, atol=1e-10)
    with torch.no_grad():  # nothing of the caller's state matters
        assert torch.equal(hessian_vector_product(model, graph, v), found)
    both = gf.batch([graph, gf.AtomGraph.from_atoms(tiny_cell(), model.cutoff)])
    wide = torch.cat([v, torch.ones(2, 3, dtype=torch.float64)])
    found = hessian_vector_product(model, both, wide)
    torch.testing.assert_close(found[:, :6].flatten(1), expected, rtol=1e-9, atol=1e-9)
    assert found[:, 6:].abs().max() < 1e-9  # translation of the other graph


def test_rotations_cost_nothing_where_there_are_no_forces():
    model = make_model(gf.SchNet, repulsion=True)
    # the stationary distance of a dimer, by bisection on the force
    graph = gf.AtomGraph.from_atoms(Atoms("Si2", [[0, 0, 0], [0, 0, 1.0]]), model.cutoff)

    def force(length):
        graph.positions = torch.tensor([[0, 0, 0], [0, 0, length]], dtype=torch.float64)
        out = model.predict(graph, ["forces"], weights=gf.mean_of("energy"))
        return float(out["forces"][0, 1, 2])

    grid = np.linspace(0.8, 3.8, 121)
    forces = [force(x) for x in grid]
    crossing = next(i for i in range(120) if forces[i] * forces[i + 1] < 0)
    low, high = grid[crossing], grid[crossing + 1]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if force(middle) * force(low) < 0 else (middle, high)
    assert abs(force(low)) < 1e-12
    matrix = hessian(model, graph, weights=gf.mean_of("energy"))[0]
    turn = torch.tensor([0, 0, 0, 1.0, 0, 0], dtype=torch.float64)
    assert (matrix @ turn).abs().max() < 1e-9 * matrix.abs().max()


def test_atoms_without_edges():
    model = make_model(gf.PaiNN)
    graph = gf.AtomGraph.from_atoms(Atoms("HO", [[0, 0, 0], [0, 0, 90]]), model.cutoff)
    assert torch.equal(hessian(model, graph), torch.zeros(3, 6, 6, dtype=torch.float64))
    v = torch.ones(2, 3, dtype=torch.float64)
    zero = torch.zeros(3, 2, 3, dtype=torch.float64)
    assert torch.equal(hessian_vector_product(model, graph, v), zero)


def test_what_has_no_answer_is_refused():
    model = make_model(gf.PaiNN)
    graph = gf.AtomGraph.from_atoms(methanol(), model.cutoff)
    with pytest.raises(UserError, match="batch of 2"):
        hessian(model, gf.batch([graph, graph]))
    with pytest.raises(GeometryError, match="cutoff"):
        hessian(model, gf.AtomGraph.from_atoms(methanol(), 2.0))
    with pytest.raises(UserError, match="direction"):
        hessian_vector_product(model, graph, torch.ones(3))


def test_asymmetric_or_infinite_rows_are_not_averaged_away():
    matrix = torch.eye(3, dtype=torch.float64)[None].repeat(2, 1, 1)
    matrix[1, 0, 2] = 1e-9  # rounding
    assert torch.equal(
        symmetrized(matrix, torch.float64), 0.5 * (matrix + matrix.transpose(1, 2))
    )
    matrix[1, 0, 2] = 1e-5
    symmetrized(matrix, torch.float32)
    with pytest.raises(GradientError, match="transpose"):
        symmetrized(matrix, torch.float64)
    matrix[0, 1, 1] = float("nan")
    with pytest.raises(GradientError, match="not finite"):
        symmetrized(matrix, torch.float64)


class WrongTwice(torch.autograd.Function):
    """A product whose slopes are right; one of them forgets where it comes from."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b.detach(), grad * a


class Careless(Own):
    def forward(self, graph, vectors):
        source, target = graph.edge_index
        h = self.embed(graph.numbers)
        size = WrongTwice.apply(vectors[:, 1].sin(), vectors[:, 2].cos())
        return h + scatter_sum(size[:, None] * gather(h, source), target, graph.n_atoms)


BACKBONES.pop("Careless")


def test_a_wrong_double_backward_is_found_out():
    model = make_model(Careless)
    graph = gf.AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
    with pytest.raises(GradientError, match="double backward"):
        hessian(model, graph, memory=1)


def test_product_without_atoms_or_rows():
    model = make_model(gf.PaiNN)
    graph = gf.AtomGraph.from_atoms(Atoms(), model.cutoff)
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert hessian_vector_product(model, graph, empty).shape == (3, 0, 3)
    assert hessian_vector_product(model, graph, empty, weights=[]).shape == (0, 0, 3)
    assert hessian(model, graph).shape == (3, 0, 0)
