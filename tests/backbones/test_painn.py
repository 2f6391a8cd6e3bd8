import math

import torch
from ase.build import molecule
from torch.nn.functional import silu

from gnnforce.backbones.painn import PaiNN
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import edge_vectors


def mlp(layers, x):
    hidden = silu(x @ layers[0].weight.T + layers[0].bias)
    return hidden @ layers[2].weight.T + layers[2].bias


def envelope(r, rc, p=6):
    x = r / rc
    return (
        1
        - (p + 1) * (p + 2) / 2 * x**p
        + p * (p + 2) * x ** (p + 1)
        - p * (p + 1) / 2 * x ** (p + 2)
    )


def messages(block, s, v, positions, rc):
    """Equations 7 and 8 of arXiv 2102.03150, pair by pair."""
    n = s.shape[1]
    ds, dv = torch.zeros_like(s), torch.zeros_like(v)
    for i in range(len(s)):
        for j in range(len(s)):
            r = math.dist(positions[i], positions[j])
            if i == j or r >= rc:
                continue
            direction = (positions[j] - positions[i]) / r
            basis = [
                math.sqrt(2 / rc) * math.sin(k * math.pi * r / rc) / r
                for k in range(1, block.filters.in_features)
            ]
            rbf = torch.tensor([*basis, 1.0], dtype=torch.float64)  # the last is a bias
            w = (block.filters.weight @ rbf) * envelope(r, rc)
            scalar, along, carry = (mlp(block.context, s[j]) * w).split(n)
            ds[i] += scalar
            dv[i] += carry * v[j] + along * direction[:, None]
    return s + ds, v + dv


def update(block, s, v):
    """Equations 9 and 10."""
    n = s.shape[1]
    weight_u, weight_v = block.mix.weight.split(n)
    u, w = v @ weight_u.T, v @ weight_v.T
    norm = torch.sqrt((w**2).sum(1) + 1e-2)
    a_vv, a_sv, a_ss = mlp(block.context, torch.cat([s, norm], 1)).split(n, 1)
    return s + a_ss + a_sv * (u * w).sum(1), v + a_vv[:, None] * u


def test_equals_the_published_equations():
    torch.manual_seed(0)
    atoms = molecule("CH3CH2OH")
    model = PaiNN([1, 6, 8], n_features=5, n_layers=3, cutoff=2.5, n_radial=6).double()
    for parameter in model.parameters():  # biases start at zero and would not be tested
        parameter.data += 0.1 * torch.randn_like(parameter)
    positions = torch.tensor(atoms.positions)
    rows = [model.elements.index(z) for z in atoms.numbers]
    s = model.embedding.weight[rows]
    v = torch.zeros(len(s), 3, s.shape[1], dtype=torch.float64)
    for message_block, update_block in zip(model.messages, model.updates, strict=True):
        s, v = messages(message_block, s, v, positions, 2.5)
        s, v = update(update_block, s, v)
    graph = AtomGraph.from_atoms(atoms, 2.5)
    got = model(graph, edge_vectors(graph))
    torch.testing.assert_close(got, s, rtol=1e-12, atol=1e-12)


def test_no_cusp_where_vectors_vanish_by_symmetry():
    """The force on the carbon of methane grows evenly with its displacement."""
    from gnnforce.models.force_field import ForceField
    from gnnforce.readouts.head import Head

    torch.manual_seed(1)
    model = ForceField(PaiNN([1, 6], n_features=16), [Head("e")]).double()
    atoms = molecule("CH4")

    def stiffness(shift):
        moved = atoms.copy()
        moved.positions[0, 2] += shift
        graph = AtomGraph.from_atoms(moved, model.cutoff)
        return float(model.predict(graph, ["forces"])["forces"][0, 0, 2]) / shift

    near, further = stiffness(1e-5), stiffness(1e-3)
    assert abs(near - further) < 1e-3 * abs(near)
