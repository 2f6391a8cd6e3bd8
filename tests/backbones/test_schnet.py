import math

import pytest
import torch
from ase.build import molecule

from gnnforce.backbones.schnet import SchNet
from gnnforce.errors import UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import edge_vectors


def ssp(x):
    return torch.log(0.5 * torch.exp(x) + 0.5)


def dense(layer, x):
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


def envelope(r, rc, p=6):
    x = r / rc
    return (
        1
        - (p + 1) * (p + 2) / 2 * x**p
        + p * (p + 2) * x ** (p + 1)
        - p * (p + 1) / 2 * x ** (p + 2)
    )


def published(model, numbers, positions):
    """Figure 2 of arXiv 1706.08566, atom by atom and pair by pair."""
    rc, n = model.cutoff, len(numbers)
    x = torch.stack([model.embedding.weight[model.elements.index(z)] for z in numbers])
    centers = torch.arange(model.n_radial).double() * rc / (model.n_radial - 1)
    width = rc / (model.n_radial - 1)
    for block in model.interactions:
        inward = dense(block.inward, x)
        rows = []
        for i in range(n):
            total = torch.zeros(x.shape[1], dtype=torch.float64)
            for j in range(n):
                r = math.dist(positions[i], positions[j])
                if i == j or r >= rc:
                    continue
                basis = torch.exp(-((r - centers) ** 2) / (2 * width**2))
                hidden = ssp(dense(block.filters[0], basis))
                total += inward[j] * dense(block.filters[2], hidden) * envelope(r, rc)
            rows.append(total)
        hidden = ssp(dense(block.outward[0], torch.stack(rows)))
        x = x + dense(block.outward[2], hidden)
    return x


def test_equals_the_published_equations():
    torch.manual_seed(0)
    atoms = molecule("CH3CH2OH")
    model = SchNet([1, 6, 8], n_features=5, n_layers=2, cutoff=2.5, n_radial=6).double()
    for parameter in model.parameters():  # biases start at zero and would not be tested
        parameter.data += 0.1 * torch.randn_like(parameter)
    graph = AtomGraph.from_atoms(atoms, 2.5)
    expected = published(model, atoms.numbers.tolist(), atoms.positions.tolist())
    got = model(graph, edge_vectors(graph))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_one_gaussian_has_no_width():
    with pytest.raises(UserError, match="n_radial of SchNet must be at least 2, not 1"):
        SchNet([1], n_radial=1)
