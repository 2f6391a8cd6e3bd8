import json

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.calculator import (
    CalculationFailed,
    PropertyNotImplementedError,
)
from ase.constraints import FixAtoms
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems
from gnnforce.testing.calculator import check_calculator
from gnnforce.testing.checks import failures


def fresh(model, atoms, head=None):
    return Calculator(model, head=head).get_potential_energy(atoms.copy())


@pytest.mark.parametrize("head", ["pbe", "hf"])
@pytest.mark.parametrize("make", [SchNet, PaiNN])
def test_passes_the_calculator_checks(make, head, make_model):
    calc = Calculator(make_model(make=make), head=head)
    checks = check_calculator(calc, elements=[1, 6, 8])
    assert not failures(checks)
    assert len(checks) > 15


def test_one_calculator_for_many_structures(model):  # C16
    calc = Calculator(model)
    moved = molecule("H2O")
    moved.positions[1, 0] += 0.01
    chain = [molecule("CH4"), molecule("H2O"), molecule("CH4"), moved]
    for atoms in chain:
        energy, forces = fresh(model, atoms), Calculator(model).get_forces(atoms)
        assert calc.get_potential_energy(atoms) == energy
        calc.calculate(atoms)
        assert calc.results["energy"] == energy
        assert calc.results["forces"].shape == (len(atoms), 3)
        assert calc.results["energies"].shape == (len(atoms),)
        atoms.calc = calc
        assert atoms.get_potential_energy() == energy
        np.testing.assert_array_equal(atoms.get_forces(), forces)
    assert fresh(model, moved) != fresh(model, molecule("H2O"))


def test_scalars_are_floats(model):  # C17
    for dtype in ("float64", "float32"):
        atoms = systems.water()
        atoms.calc = Calculator(model, dtype=dtype)
        energy = atoms.get_potential_energy()
        assert type(energy) is float
        assert type(atoms.calc.results["energy_std"]) is float
        json.dumps(energy)
        assert atoms.get_potential_energy(force_consistent=True) == energy
        forces = atoms.get_forces()
        assert forces.dtype == np.float64
        assert forces.flags.c_contiguous
        assert forces.shape == (3, 3)


def test_cell_filter_and_mixed_periodicity_run(calc):  # C17
    copper = bulk("Cu", a=3.5)
    copper.calc = calc
    before = copper.get_potential_energy()
    BFGS(FrechetCellFilter(copper), logfile=None).run(steps=2)
    assert copper.get_potential_energy() != before
    slab = fcc111("Cu", (1, 1, 3), vacuum=6.0)
    slab.calc = calc
    assert slab.pbc.tolist() == [True, True, False]
    assert np.isfinite(slab.get_stress()).all()
    slab.set_constraint(FixAtoms([0]))
    assert not slab.get_forces()[0].any()
    assert slab.get_forces(apply_constraint=False)[0].any()


def test_stress_unit_sign_and_order(model):  # C19
    for head in model.head_names:
        calc = Calculator(model, head=head)
        atoms = systems.skewed_pair()
        stress = calc.get_stress(atoms)
        pairs = [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)]
        slopes = []
        for i, j in pairs:
            energies = []
            for h in (1e-5, -1e-5):
                strain = np.eye(3)
                strain[i, j] += h / 2
                strain[j, i] += h / 2
                bent = atoms.copy()
                bent.set_cell(atoms.cell.array @ strain, scale_atoms=True)
                energies.append(calc.get_potential_energy(bent))
            slopes.append((energies[0] - energies[1]) / 2e-5 / atoms.get_volume())
        assert np.ptp(stress) > 1e-4
        np.testing.assert_allclose(stress, slopes, atol=1e-6)


def test_compressed_is_negative_as_in_ase():  # C19
    # a repulsive model: only ZBL pushes, weights are silenced
    model = ForceField(
        SchNet([29], n_features=8, n_layers=1), [Head("e")], repulsion=True
    )
    model = model.to(torch.float64)
    model.set_scales({"e": 1e-9})
    squeezed = Atoms("Cu", cell=1.2 * np.eye(3), pbc=True)
    stress = Calculator(model).get_stress(squeezed)
    assert (stress[:3] < -1e-3).all()


def test_one_pass_for_everything(model, counting):  # C22
    calc = Calculator(model)
    copper = systems.copper()
    copper.calc = calc
    with counting(model) as passes:
        copper.get_potential_energy()
        copper.get_forces()
        copper.get_stress()
        for name in (*calc.implemented_properties, *calc.extra_properties):
            calc.get_property(name, copper)
        assert len(passes) == 1
        calc.results_by_head(copper)
        calc.results_by_head(copper)
        assert len(passes) == 2
        water = systems.water()
        water.calc = calc
        for _ in range(2):  # a refused stress must not compute either
            water.get_forces()
            with pytest.raises(PropertyNotImplementedError, match="pbc"):
                water.get_stress()
        assert len(passes) == 3


@pytest.mark.parametrize("runner", ["md", "bfgs"])
def test_one_pass_a_step(model, runner, counting):  # C22
    water = systems.water()
    water.calc = Calculator(model)
    with counting(model) as passes:
        if runner == "md":
            VelocityVerlet(water, 0.5).run(5)
            steps = 5
        else:
            optimizer = BFGS(water, logfile=None)
            optimizer.run(fmax=1e-9, steps=5)
            steps = optimizer.nsteps
    assert steps == 5
    assert len(passes) == steps + 1


def test_what_is_not_read_computes_nothing(model, counting):  # C21, C22
    atoms = systems.water()
    atoms.calc = Calculator(model)
    atoms.get_forces()
    with counting(model) as passes:
        atoms.set_initial_charges([0.1, -0.1, 0.0])
        atoms.set_initial_magnetic_moments([1, 0, 0])
        atoms.set_masses([16.0, 2.0, 2.0])
        atoms.set_tags([1, 2, 3])
        atoms.set_momenta(np.ones((3, 3)))
        atoms.info["remark"] = "new"
        atoms.get_forces()
        assert len(passes) == 0
        atoms.positions[0, 0] += 1e-9
        atoms.get_forces()
        assert len(passes) == 1
        atoms.numbers[1] = 7
        atoms.get_forces()
        assert len(passes) == 2
        atoms.set_cell([10, 10, 10])
        atoms.pbc = [True, False, False]
        atoms.get_stress()
        assert len(passes) == 3
        atoms.set_cell([10, 10, 11])
        atoms.get_stress()
        assert len(passes) == 4


def test_not_finite_is_refused_and_leaves_nothing(make_model):
    broken = make_model()
    calc = Calculator(broken)
    calc.get_forces(systems.water())
    with torch.no_grad():
        next(iter(broken.backbone.parameters())).fill_(float("nan"))
    with pytest.raises(CalculationFailed, match="not finite"):
        calc.get_forces(systems.five_elements())
    assert calc.results == {}
    assert calc.atoms is None


def test_results_survive_files_of_ase(calc, tmp_path):
    atoms = systems.five_elements(periodic=True)
    atoms.calc = calc
    energy, forces, stress = (
        atoms.get_potential_energy(),
        atoms.get_forces(),
        atoms.get_stress(),
    )
    for name in ("frame.extxyz", "frame.traj", "frame.json", "frame.db"):
        write(tmp_path / name, atoms)
        back = read(tmp_path / name)
        assert back.get_potential_energy() == pytest.approx(energy, abs=1e-7)
        np.testing.assert_allclose(back.get_forces(), forces, atol=1e-7)
        np.testing.assert_allclose(back.get_stress(), stress, atol=1e-7)
    properties = atoms.get_properties(["energy", "forces"])
    assert properties["energy"] == energy


def test_results_hold_no_tensor(calc):  # C57
    calc.results_by_head(systems.five_elements(periodic=True))
    calc.get_stress(systems.skewed_pair())
    values = [*calc.results.values(), *calc.parameters.values()]
    assert all(isinstance(v, float | np.ndarray | str | None) for v in values)
