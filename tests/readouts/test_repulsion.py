import math

import pytest
import torch
from ase import Atoms
from ase.data import covalent_radii

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.views import edge_vectors
from gnnforce.readouts.repulsion import COVALENT_RADII, ZBLRepulsion


def zbl(z1, z2, r):
    """Ziegler, Biersack and Littmark, with constants of the NIST tables."""
    a = 0.8854 * 0.529177 / (z1**0.23 + z2**0.23)
    terms = [(0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162)]
    return 14.39965 * z1 * z2 / r * sum(c * math.exp(-b * r / a) for c, b in terms)


def energy(atoms, repulsion):
    graph = AtomGraph.from_atoms(atoms, 5.0)
    lengths = edge_vectors(graph).norm(dim=1)
    return repulsion(graph, lengths)


@pytest.mark.parametrize(("pair", "numbers"), [("HH", (1, 1)), ("OSi", (8, 14))])
def test_pair_energy(pair, numbers):
    r, radius = 0.35, 1.3
    x = r / radius
    switch = 1 - 28 * x**6 + 48 * x**7 - 21 * x**8
    got = energy(Atoms(pair, [[0, 0, 0], [0, 0, r]]), ZBLRepulsion(radius))
    assert got.sum().item() == pytest.approx(zbl(*numbers, r) * switch, rel=2e-5)
    assert got[0] == got[1]  # each atom has half


def test_bonds_are_left_alone():
    for pair, length in (("H2", 0.74), ("CH", 1.09), ("N2", 1.45)):
        atoms = Atoms(pair, [[0, 0, 0], [0, 0, length]])
        assert not energy(atoms, ZBLRepulsion()).any()
        atoms.positions[1, 2] = 0.4
        assert energy(atoms, ZBLRepulsion()).sum() > 1


def test_radii():
    assert list(COVALENT_RADII[1:97]) == pytest.approx(covalent_radii[1:97].tolist())


def test_second_derivative_is_continuous():
    repulsion = ZBLRepulsion(1.0).double()
    graph = AtomGraph.from_atoms(Atoms("H2", [[0, 0, 0], [0, 0, 0.5]]), 5.0)
    r = torch.tensor([0.999999, 0.999999], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(repulsion(graph, r).sum(), r, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), r)
    assert slope.abs().max() < 1e-6
    assert curvature.abs().max() < 1e-2


def test_large_atoms_end_at_the_cutoff():
    """Two potassium atoms have radii of 4.06 Angstrom together, beyond this cutoff."""
    for cutoff in (3.0, 3.9):
        repulsion = ZBLRepulsion(cutoff=cutoff)
        pair = Atoms("K2", [[0, 0, 0], [0, 0, cutoff - 1e-3]])
        assert energy(pair, repulsion).abs().max() < 1e-6
        assert energy(pair, ZBLRepulsion()).sum() > 1e-5
        pair.positions[1, 2] = 1.0
        assert energy(pair, repulsion).sum() > 1.0


def test_radii_keep_their_precision():
    moved = ZBLRepulsion().to(torch.float32).to(torch.float64)
    assert moved.radii.tolist() == list(COVALENT_RADII)
