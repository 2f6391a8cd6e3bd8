import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from ase.constraints import FixAtoms, FixBondLength
from ase.vibrations import Vibrations as Differences
from ase.vibrations import VibrationsData

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.errors import GeometryError, UserError
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.simulation.vibrations import (
    free_atoms,
    ignored_constraints,
    matched,
    relaxed,
    signed,
    vibrations,
)


def make_model(architecture=SchNet, members=3):
    torch.manual_seed(2)
    backbone = architecture([1, 6, 8, 14], n_features=8, n_layers=2, cutoff=4.0)
    return ForceField(
        backbone, [Head("energy", members=members)], repulsion=True
    ).double()


@pytest.mark.parametrize("architecture", [SchNet, PaiNN])
def test_frequencies_equal_those_from_differences(architecture, tmp_path):
    model = make_model(architecture)
    atoms = relaxed(molecule("CH3OH"), model, None, fmax=1e-3, max_steps=2000)
    found = vibrations(atoms, model)
    atoms.calc = Calculator(model)
    reference = Differences(atoms, name=str(tmp_path / "vib"), delta=2e-4, nfree=4)
    reference.run()
    expected = signed(reference.get_vibrations())
    ours = signed(found.data)
    assert len(ours) == 18
    firm = np.abs(expected) > 50
    assert firm.sum() >= 6
    assert np.abs(ours - expected)[firm].max() < 0.1
    assert found.max_force < 1.1e-3
    together = found.data.get_hessian_2d().reshape(18, 6, 3).sum(axis=1)
    assert np.abs(together).max() < 1e-8 * np.abs(found.data.get_hessian_2d()).max()
    real = found.frequencies.real[np.abs(found.frequencies.imag) == 0].sum()
    assert found.zero_point_energy == pytest.approx(0.5 * real * 1.239841984e-4, rel=1e-6)


def test_the_spread_is_over_members():
    model = make_model()
    atoms = molecule("H2O")
    found = vibrations(atoms, model)
    singles = []
    for member in range(3):
        alone = make_model(members=1)
        alone.backbone.load_state_dict(model.backbone.state_dict())
        for ours, theirs in zip(
            alone.readouts.perceptrons.parameters(),
            model.readouts.perceptrons.parameters(),
            strict=True,
        ):
            ours.data = theirs.data[member : member + 1].clone()
        single = vibrations(atoms, alone)
        assert single.deviation is None
        singles.append(signed(single.data))
    np.testing.assert_allclose(np.sort(found.members), np.sort(singles), atol=1e-4)
    np.testing.assert_allclose(
        found.deviation, np.std(found.members, axis=0, ddof=1), atol=1e-6
    )


def test_every_member_is_compared_mode_by_mode():
    """Members that disagree about the number of imaginary modes agree on translations."""
    model = make_model()
    atoms = molecule("H2O")
    found = vibrations(atoms, model)
    counts = (found.members < -1).sum(axis=1)
    assert len(set(counts.tolist())) > 1  # order alone would mix up modes
    still = np.abs(signed(found.data)) < 0.01
    assert still.sum() >= 3
    assert found.deviation[still].max() < 0.1
    ordered = np.std(np.sort(found.members), axis=0, ddof=1)
    assert ordered[still].max() > 10  # what matching is for


def test_modes_are_matched_by_their_shape():
    atoms = Atoms("H", [[0, 0, 0]])
    soft_x = VibrationsData.from_2d(atoms, np.diag([1.0, 4.0, 9.0]))
    soft_z = VibrationsData.from_2d(atoms, np.diag([9.0, 4.0, -1.0]))
    one = signed(soft_x)[0]
    np.testing.assert_allclose(matched(soft_z, soft_x), [3 * one, 2 * one, -one])
    np.testing.assert_allclose(matched(soft_x, soft_x), signed(soft_x))


def test_masses_and_fixed_atoms():
    model, atoms = make_model(), molecule("H2O")
    light = vibrations(atoms, model)
    heavy = atoms.copy()
    heavy.set_masses([4 * m for m in atoms.get_masses()])
    np.testing.assert_allclose(
        signed(vibrations(heavy, model).data), signed(light.data) / 2, atol=1e-6
    )
    atoms.set_constraint(FixAtoms([0]))
    fixed = vibrations(atoms, model)
    assert len(fixed.frequencies) == 6
    part = light.data.get_hessian_2d()[3:, 3:]
    np.testing.assert_allclose(fixed.data.get_hessian_2d(), part, atol=1e-10)
    assert len(vibrations(atoms, model, all_atoms=True).frequencies) == 9


def test_a_crystal_has_three_translations():
    atoms = bulk("Si", "diamond", 5.4)
    found = signed(vibrations(atoms, make_model()).data)
    assert np.sort(np.abs(found))[2] < 0.01 < np.sort(np.abs(found))[3]


def test_what_has_no_answer_is_refused():
    model, atoms = make_model(), molecule("H2O")
    with pytest.raises(UserError, match="float64"):
        vibrations(atoms, make_model().float())
    with pytest.raises(GeometryError, match="without atoms"):
        vibrations(Atoms(), model)
    atoms.set_constraint([FixAtoms([0, 1, 2]), FixBondLength(0, 1)])
    with pytest.raises(UserError, match="fixed"):
        free_atoms(atoms, all_atoms=False)
    assert ignored_constraints(atoms) == ["FixBondLengths"]
    with pytest.raises(UserError, match="--relax"):
        relaxed(molecule("H2O"), model, None, fmax=0.0)
    with pytest.raises(UserError, match="--relax"):
        relaxed(molecule("H2O"), model, None, fmax=np.inf)
    ghost = molecule("H2O")
    ghost.set_masses([16, 0, 1])
    with pytest.raises(GeometryError, match="masses"):
        vibrations(ghost, model)
    with pytest.raises(UserError, match="after 1 steps"):
        relaxed(molecule("CH3OH"), model, None, fmax=1e-9, max_steps=1)
