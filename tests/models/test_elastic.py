import numpy as np
import pytest
import torch
from ase.build import bulk, molecule

import gnnforce as gf
from gnnforce.errors import StressError, UserError
from gnnforce.models.elastic import elastic_constants
from gnnforce.models.second_order import displaced, from_voigt


def make_model(architecture):
    torch.manual_seed(5)
    backbone = architecture(elements=[14], n_features=6, cutoff=4.5)
    return gf.ForceField(
        backbone, [gf.Head("energy", members=2)], repulsion=True
    ).double()


def silicon(rattled=0.0):
    atoms = bulk("Si", "diamond", 5.2)
    atoms.set_cell(atoms.cell.array @ (np.eye(3) + 0.02 * np.diag([1, 0, -1])), True)
    atoms.rattle(rattled, seed=1) if rattled else None
    return atoms


def energy_of(model, atoms, strain):
    strained = atoms.copy()
    shape = np.eye(3) + from_voigt(strain).numpy()
    strained.set_cell(atoms.cell.array @ shape, scale_atoms=True)
    graph = gf.AtomGraph.from_atoms(strained, model.cutoff)
    return model.predict(graph, ["energy"])["energy"][:, 0]


@pytest.mark.parametrize("architecture", [gf.SchNet, gf.PaiNN])
def test_clamped_constants_equal_differences_of_energies(architecture):
    model, atoms = make_model(architecture), silicon(0.05)
    graph = gf.AtomGraph.from_atoms(atoms, model.cutoff)
    found = elastic_constants(model, graph).clamped
    h = 4e-4
    for i, j in ((0, 0), (0, 1), (2, 3), (3, 3), (4, 5)):
        total = 0
        for a in (1, -1):
            for b in (1, -1):
                strain = torch.zeros(6, dtype=torch.float64)
                strain[i] += a * h
                strain[j] += b * h
                total = total + a * b * energy_of(model, atoms, strain)
        expected = total / (4 * h * h) / atoms.get_volume()
        scale = found.abs().max()
        assert (found[:, i, j] - expected).abs().max() < 2e-4 * scale, (i, j)


def strain_slopes(model, graph, moved, strain, output):
    """First derivatives of one energy by displacements and strain."""
    moved, strain = moved.requires_grad_(), strain.requires_grad_()
    energy = model(graph, displaced(graph, moved, strain)).energy[output, 0]
    return torch.autograd.grad(energy, [moved, strain], create_graph=True)


def relaxed_slope(model, graph, strain, output):
    """Derivative by strain where atoms feel no force: Newton's method."""
    moved = torch.zeros(graph.n_atoms, 3, dtype=torch.float64)
    for _ in range(8):
        moved, strain = moved.detach(), strain.detach()
        by_atoms, by_strain = strain_slopes(model, graph, moved, strain, output)
        rows = [
            torch.autograd.grad(g, moved, retain_graph=True)[0].view(-1)
            for g in by_atoms.view(-1)
        ]
        inverse = torch.linalg.pinv(torch.stack(rows), hermitian=True, rtol=1e-8)
        step = inverse @ by_atoms.detach().view(-1)
        moved = moved - step.view_as(moved)
    assert by_atoms.abs().max() < 1e-9
    return by_strain.detach()


@pytest.mark.parametrize("architecture", [gf.SchNet, gf.PaiNN])
def test_relaxed_constants_equal_differences_with_relaxed_atoms(architecture):
    model, atoms = make_model(architecture), silicon()  # no forces, by symmetry
    graph = gf.AtomGraph.from_atoms(atoms, model.cutoff)
    out = model.predict(graph, ["forces"])
    assert out["forces"].abs().max() < 1e-10
    found = elastic_constants(model, graph)
    assert (found.relaxed - found.clamped).abs().max() > 1e-4 * found.clamped.abs().max()
    h = 2e-6
    for output in (0, 1):
        for j in (0, 3, 5):
            unit = torch.zeros(6, dtype=torch.float64)
            unit[j] = h
            plus = relaxed_slope(model, graph, unit, output)
            minus = relaxed_slope(model, graph, -unit, output)
            expected = (plus - minus) / (2 * h) / atoms.get_volume()
            scale = found.relaxed[output].abs().max()
            assert (found.relaxed[output, :, j] - expected).abs().max() < 1e-5 * scale


def test_internal_strain_is_the_change_of_forces():
    model, atoms = make_model(gf.PaiNN), silicon()
    graph = gf.AtomGraph.from_atoms(atoms, model.cutoff)
    found = elastic_constants(model, graph).internal
    h = 1e-4
    strain = torch.zeros(6, dtype=torch.float64)
    strain[5] = h
    forces = []
    for sign in (1, -1):
        strained = atoms.copy()
        shape = np.eye(3) + from_voigt(sign * strain).numpy()
        strained.set_cell(atoms.cell.array @ shape, scale_atoms=True)
        moved = gf.AtomGraph.from_atoms(strained, model.cutoff)
        forces.append(model.predict(moved, ["forces"])["forces"])
    expected = -(forces[0] - forces[1]) / (2 * h)
    assert (found[..., 5] - expected).abs().max() < 1e-5 * found.abs().max()


def test_units_symmetry_and_refusals():
    model, atoms = make_model(gf.SchNet), silicon()
    graph = gf.AtomGraph.from_atoms(atoms, model.cutoff)
    found = elastic_constants(model, graph)
    assert torch.equal(found.relaxed, found.relaxed.mT)
    ratio = found.in_gpa().clamped / found.clamped
    assert torch.allclose(ratio, torch.full_like(ratio, 160.2176621))
    one = elastic_constants(model, graph, weights=gf.mean_of("energy"))
    torch.testing.assert_close(one.clamped[0], found.clamped.mean(dim=0))
    cluster = molecule("SiH4")
    cluster.numbers[:] = 14
    alone = gf.AtomGraph.from_atoms(cluster, model.cutoff)
    with pytest.raises(StressError, match="periodic"):
        elastic_constants(model, alone)
    with pytest.raises(UserError, match="batch"):
        elastic_constants(model, gf.batch([graph, graph]))


def test_translations_are_left_out_in_float32_too():
    model, atoms = make_model(gf.PaiNN), silicon(0.05)
    exact = elastic_constants(model, gf.AtomGraph.from_atoms(atoms, model.cutoff))
    graph = gf.AtomGraph.from_atoms(atoms, model.cutoff, dtype=torch.float32)
    rough = elastic_constants(model.float(), graph)
    assert rough.relaxed.dtype == torch.float64
    scale = exact.relaxed.abs().max()
    assert (rough.relaxed - exact.relaxed).abs().max() < 1e-4 * scale
