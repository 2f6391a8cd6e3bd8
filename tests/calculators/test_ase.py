import json
import warnings

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.calculator import (
    CalculationFailed,
    PropertyNotImplementedError,
    all_properties,
)
from ase.constraints import FixAtoms
from ase.filters import FrechetCellFilter
from ase.io import read, write
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.errors import (
    GeometryError,
    UnknownElementError,
    UnknownHeadError,
    UserError,
)
from gnnforce.models.checkpoint import load
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems
from gnnforce.testing.calculator import check_calculator
from gnnforce.testing.checks import failures
from gnnforce.testing.measure import evaluate

ELEMENTS = [1, 6, 7, 8, 14, 18, 29]
EXTRA = {
    "energy_std": (),
    "forces_std": ("n", 3),
    "energy_members": (3,),
    "forces_members": (3, "n", 3),
}
EXTRA_STRESS = {"stress_std": (6,), "stress_members": (3, 6)}


def make_model(heads=None, dtype=torch.float64, make=PaiNN, cutoff=5.0):
    torch.manual_seed(7)
    heads = heads or [Head("pbe", members=3), Head("hf"), Head("cc")]
    model = ForceField(make(ELEMENTS, n_features=8, n_layers=2, cutoff=cutoff), heads)
    model = model.to(dtype)
    base = {1: -13.0, 6: -38.0, 7: -54.0, 8: -75.0, 14: -100.0, 18: -120.0, 29: -150.0}
    model.set_references(
        {h.name: {z: e * (i + 1) for z, e in base.items()} for i, h in enumerate(heads)}
    )
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture
def calc(model):
    return Calculator(model)


class Counter:
    def __init__(self, model):
        self.calls = 0
        self._handle = model.backbone.register_forward_hook(self._count)

    def _count(self, *_):
        self.calls += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._handle.remove()


def fresh(model, atoms, head=None):
    return Calculator(model, head=head).get_potential_energy(atoms.copy())


# --- the general checks of gnnforce.testing ------------------------------------------


@pytest.mark.parametrize("head", ["pbe", "hf"])
@pytest.mark.parametrize("make", [SchNet, PaiNN])
def test_passes_the_calculator_checks(make, head):
    calc = Calculator(make_model(make=make), head=head)
    checks = check_calculator(calc, elements=[1, 6, 8])
    assert not failures(checks)
    assert len(checks) > 15


# --- structures (C01, C06, C07, C09, C10, C11, C14) ----------------------------------


def test_lone_atom_in_three_boxes(calc):  # C01
    box = 100 * np.eye(3)
    atoms = [
        Atoms("H"),
        Atoms("H", cell=box),
        Atoms("H", cell=box, pbc=True),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        energies = [calc.get_potential_energy(a) for a in atoms]
        forces = [calc.get_forces(a) for a in atoms]
        stress = calc.get_stress(atoms[2])
    assert energies == [-13.0, -13.0, -13.0]
    for force in forces:
        assert force.shape == (1, 3)
        assert not force.any()
    assert not stress.any()


def test_supercells_of_cells_smaller_than_the_cutoff(model):  # C06
    calc = Calculator(model)
    skewed = Atoms("Si", cell=[[3, 0, 0], [2.9, 1, 0], [0, 0, 8]], pbc=True)
    chain = Atoms("H", cell=[2, 10, 10], pbc=[True, False, False])
    for atoms, times in ((systems.copper(), 2), (skewed, 2), (chain, (2, 1, 1))):
        n = 2 if times == (2, 1, 1) else 8
        big = atoms.repeat(times)
        assert calc.get_potential_energy(big) == pytest.approx(
            n * fresh(model, atoms), abs=1e-7
        )
        calc.get_stress(atoms)
        assert abs(calc.get_forces(atoms)).max() < 1e-10  # by symmetry
        np.testing.assert_allclose(
            calc.get_stress(big) * n,
            calc.get_stress(atoms) * n,
            atol=1e-8,
        )


def test_wrapped_and_unwrapped_atoms(calc):  # C07
    cell = 4 * np.eye(3)
    shifts = ([0, 0, 0], [28.0, 0, 0], [-400.0, 800, 12])
    energies, forces, stresses = [], [], []
    for shift in shifts:
        atoms = Atoms("Ar2", [[0.1, 0, 0], [3.9, 0, 0]], cell=cell, pbc=True)
        atoms.positions[0] += shift
        before = atoms.positions.tobytes()
        energies.append(calc.get_potential_energy(atoms))
        forces.append(calc.get_forces(atoms))
        stresses.append(calc.get_stress(atoms))
        assert atoms.positions.tobytes() == before
    assert np.ptp(energies) < 1e-8
    assert abs(forces[0]).max() > 1e-3
    for other in (1, 2):
        np.testing.assert_allclose(forces[other], forces[0], atol=1e-8)
        np.testing.assert_allclose(stresses[other], stresses[0], atol=1e-8)


def test_cell_of_an_open_structure_is_not_read(calc, model):  # C09
    cells = [None, np.eye(3), 50 * np.eye(3), [[0, 1, 0], [1, 0, 0], [0, 0, 1]]]
    energies = []
    for cell in cells:
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.5]], cell=cell)
        energies.append(fresh(model, atoms))
        with pytest.raises(PropertyNotImplementedError):
            calc.get_stress(atoms)
    assert np.ptp(energies) < 1e-10
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1.5]])
    calc.get_forces(atoms)
    with Counter(model) as counter:
        atoms.set_cell([9, 9, 9])
        calc.get_forces(atoms)
    assert counter.calls == 0


def test_origin_does_not_matter(model):  # C10
    atoms, far, further = (systems.water() for _ in range(3))
    far.positions += [5000, 0, 0]
    further.positions += [0, -1e6, 0]
    calc = Calculator(model)
    assert calc.get_potential_energy(far) == pytest.approx(
        calc.get_potential_energy(atoms), abs=1e-8
    )
    assert calc.get_potential_energy(further) == pytest.approx(
        calc.get_potential_energy(atoms), abs=1e-5
    )
    single = Calculator(model, dtype="float32")
    assert single.get_potential_energy(far) == pytest.approx(
        single.get_potential_energy(atoms), abs=1e-4
    )
    np.testing.assert_allclose(
        single.get_forces(far), single.get_forces(atoms), atol=1e-4
    )


def test_more_neighbors_than_usual_limits(calc):  # C11
    atoms = systems.argon_grid()
    energy = calc.get_potential_energy(atoms)
    turned = atoms[np.random.default_rng(0).permutation(len(atoms))]
    turned.rotate(37.0, (1, 2, 3))
    assert calc.get_potential_energy(turned) == pytest.approx(energy, abs=1e-7)
    center = 62
    step = 3e-5
    forces = calc.get_forces(atoms)
    assert abs(forces[0]).max() > 1e-6  # a corner; the center has none by symmetry
    for index in (center, 0):
        slopes = []
        for h in (step, -step):
            moved = atoms.copy()
            moved.positions[index, 0] += h
            slopes.append(calc.get_potential_energy(moved))
        slope = (slopes[0] - slopes[1]) / (2 * step)
        assert -slope == pytest.approx(forces[index, 0], abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        Atoms("He2", [[0, 0, 0], [0, 0, 3]]),
        Atoms("OHHX", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0], [3, 3, 3]]),
        Atoms("HOg", [[0, 0, 0], [0, 0, 2]]),
    ],
)
def test_unknown_element_is_named_and_leaves_nothing(calc, wrong):  # C14, C16
    water = systems.water()
    before = calc.get_potential_energy(water)
    symbol = {2: "He", 0: "X", 118: "Og"}[
        next(z for z in wrong.numbers if z not in ELEMENTS)
    ]
    with pytest.raises(UnknownElementError, match=rf"\b{symbol}\b"):
        calc.get_potential_energy(wrong)
    assert calc.results == {}
    assert calc.atoms is None
    assert calc.get_potential_energy(water) == before


# --- ASE semantics (C16, C17, C19, C20, C22) -----------------------------------------


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


def test_declared_names_and_instances(model):  # C20
    on_class = list(Calculator.implemented_properties)
    many = Calculator(model, head="pbe")
    names = list(many.implemented_properties)
    one = Calculator(make_model([Head("m", kind="node_mean")]))
    assert one.implemented_properties == ["energy", "free_energy", "forces", "stress"]
    assert many.implemented_properties == names
    assert list(Calculator.implemented_properties) == on_class == []
    assert set(names) <= set(all_properties)
    for atoms in (systems.five_elements(periodic=True), systems.skewed_pair()):
        for name in names:
            assert np.isfinite(many.get_property(name, atoms)).all()
        shapes = {**EXTRA, **EXTRA_STRESS}
        assert sorted(many.extra_properties) == sorted(shapes)
        assert set(many.results) == set(names) | set(shapes)
        for name, shape in shapes.items():
            value = many.get_property(name, atoms)
            expected = tuple(len(atoms) if s == "n" else s for s in shape)
            assert np.shape(value) == expected
            assert np.isfinite(value).all()
    energies = many.get_property("energies", systems.water())
    assert energies.shape == (3,)
    assert energies.sum() == pytest.approx(many.results["energy"], abs=1e-9)


def test_members_one_head_has_no_spread(model):
    calc = Calculator(model, head="hf")
    calc.get_forces(systems.water())
    assert set(calc.results) == {"energy", "free_energy", "forces", "energies"}
    with pytest.raises(PropertyNotImplementedError, match="forces_std"):
        calc.get_property("forces_std", systems.water())


def test_committee_results_are_mean_and_spread_of_members(calc, model):  # C47
    atoms = systems.skewed_pair()
    calc.get_forces(atoms)
    out = evaluate(model, atoms, "energy", "forces", "stress")
    results = calc.results
    np.testing.assert_allclose(results["energy_members"], out["energy"][:3], atol=1e-12)
    np.testing.assert_allclose(results["forces_members"], out["forces"][:3], atol=1e-12)
    members = results["stress_members"]
    np.testing.assert_allclose(members[:, :3], out["stress"][:3, [0, 1, 2], [0, 1, 2]])
    np.testing.assert_allclose(members[:, 3], out["stress"][:3, 1, 2])
    np.testing.assert_allclose(members[:, 4], out["stress"][:3, 0, 2])
    np.testing.assert_allclose(members[:, 5], out["stress"][:3, 0, 1])
    for name in ("energy", "forces", "stress"):
        values = results[f"{name}_members"]
        np.testing.assert_allclose(results[name], values.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(results[f"{name}_std"], values.std(axis=0, ddof=1))
        assert np.max(results[f"{name}_std"]) > 0


def test_one_pass_for_everything(model):  # C22
    calc = Calculator(model)
    copper = systems.copper()
    copper.calc = calc
    with Counter(model) as counter:
        copper.get_potential_energy()
        copper.get_forces()
        copper.get_stress()
        for name in (*calc.implemented_properties, *calc.extra_properties):
            calc.get_property(name, copper)
        assert counter.calls == 1
        calc.results_by_head(copper)
        calc.results_by_head(copper)
        assert counter.calls == 2
        water = systems.water()
        water.calc = calc
        for _ in range(2):  # a refused stress must not compute either
            water.get_forces()
            with pytest.raises(PropertyNotImplementedError, match="pbc"):
                water.get_stress()
        assert counter.calls == 3


@pytest.mark.parametrize("runner", ["md", "bfgs"])
def test_one_pass_a_step(model, runner):  # C22
    water = systems.water()
    water.calc = Calculator(model)
    with Counter(model) as counter:
        if runner == "md":
            VelocityVerlet(water, 0.5).run(5)
            steps = 5
        else:
            optimizer = BFGS(water, logfile=None)
            optimizer.run(fmax=1e-9, steps=5)
            steps = optimizer.nsteps
    assert steps == 5
    assert counter.calls == steps + 1


def test_what_is_not_read_computes_nothing(model):  # C21, C22
    atoms = systems.water()
    atoms.calc = Calculator(model)
    atoms.get_forces()
    with Counter(model) as counter:
        atoms.set_initial_charges([0.1, -0.1, 0.0])
        atoms.set_initial_magnetic_moments([1, 0, 0])
        atoms.set_masses([16.0, 2.0, 2.0])
        atoms.set_tags([1, 2, 3])
        atoms.set_momenta(np.ones((3, 3)))
        atoms.info["remark"] = "new"
        atoms.get_forces()
        assert counter.calls == 0
        atoms.positions[0, 0] += 1e-9
        atoms.get_forces()
        assert counter.calls == 1
        atoms.numbers[1] = 7
        atoms.get_forces()
        assert counter.calls == 2
        atoms.set_cell([10, 10, 10])
        atoms.pbc = [True, False, False]
        atoms.get_stress()
        assert counter.calls == 3
        atoms.set_cell([10, 10, 11])
        atoms.get_stress()
        assert counter.calls == 4


# --- charge (C21) --------------------------------------------------------------------


@pytest.mark.parametrize("charge", [-1, np.int64(-1), -1.0])
def test_charge_warns_once(model, charge):
    calc = Calculator(model)
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])
    neutral = calc.get_potential_energy(atoms)
    atoms.info["charge"] = charge
    with pytest.warns(UserWarning, match="charge -1"):
        assert calc.get_potential_energy(atoms) == neutral
    atoms.positions[0, 0] += 0.01
    calc.get_potential_energy(atoms)  # a second warning would be an error


def test_fractional_charge_is_refused(calc):
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])
    atoms.info["charge"] = 0.5
    with pytest.raises(GeometryError, match=r"0\.5"):
        calc.get_potential_energy(atoms)
    assert calc.results == {}


# --- heads (C44) ---------------------------------------------------------------------


def test_heads_by_name_and_number_on_every_route(tmp_path):
    model = make_model([Head("pbe"), Head("hf"), Head("cc")])
    expected = {"pbe": -10.0, "hf": -20.0, "cc": -30.0}
    model.set_references({h: dict.fromkeys(ELEMENTS, e0) for h, e0 in expected.items()})
    model.save(tmp_path / "model.pt")
    lone, pair = Atoms("H"), Atoms("H2", [[0, 0, 0], [0, 0, 0.8]])
    for number, (head, e0) in enumerate(expected.items()):
        routes = [
            Calculator(model, head=head),
            Calculator(model, number),
            Calculator(tmp_path / "model.pt", head=head),
            Calculator(str(tmp_path / "model.pt"), head=number),
        ]
        direct = float(evaluate(model, pair)["energy"][number])
        for calc in routes:
            assert calc.head == head
            assert calc.get_potential_energy(lone) == pytest.approx(e0, abs=1e-8)
            assert calc.get_potential_energy(pair) == pytest.approx(direct, abs=1e-8)
        by_head = Calculator(model).results_by_head(pair)
        assert by_head[head]["energy"] == pytest.approx(direct, abs=1e-8)
    assert Calculator(model).head == "pbe"  # the rule: the first
    assert list(Calculator(model).results_by_head(lone)) == ["pbe", "hf", "cc"]


@pytest.mark.parametrize("head", ["PBE", "", 3, -1, True])
def test_unknown_head_lists_the_heads(model, head):
    with pytest.raises(UnknownHeadError, match="pbe, hf, cc"):
        Calculator(model, head=head)


def test_set_changes_head_and_forgets(model):
    calc = Calculator(model)
    water = systems.water()
    pbe = calc.get_potential_energy(water)
    assert calc.set(head="hf") == {"head": "hf"}
    assert calc.results == {}
    assert calc.get_potential_energy(water) == fresh(model, water, "hf") != pbe
    assert calc.extra_properties == []
    with pytest.raises(UserError, match="strategy"):
        calc.set(stratgy="loop")
    with pytest.raises(UnknownHeadError, match="pbe"):
        calc.set(head="nope")


# --- failures and files --------------------------------------------------------------


def test_not_finite_is_refused_and_leaves_nothing():
    broken = make_model()
    calc = Calculator(broken)
    calc.get_forces(systems.water())
    with torch.no_grad():
        next(iter(broken.backbone.parameters())).fill_(float("nan"))
    with pytest.raises(CalculationFailed, match="not finite"):
        calc.get_forces(systems.five_elements())
    assert calc.results == {}
    assert calc.atoms is None


def test_bad_geometry_is_refused_by_name(calc):
    twins = Atoms("H2", [[0, 0, 0], [0, 0, 1e-6]])
    with pytest.raises(GeometryError, match="atoms 0 and 1"):
        calc.get_forces(twins)
    lost = Atoms("H2", [[0, 0, 0], [0, 0, np.nan]])
    with pytest.raises(GeometryError, match="atom 1"):
        calc.get_forces(lost)
    with pytest.raises(UserError, match="no structure"):
        Calculator(calc.model).get_property("energy")


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


def test_file_model_equals_memory(model, tmp_path):  # C54
    model.save(tmp_path / "model.pt")
    files = sorted(tmp_path.iterdir())
    content = files[0].read_bytes()
    water = systems.water()
    calc = Calculator(tmp_path / "model.pt", head="pbe")
    assert calc.get_potential_energy(water) == fresh(model, water, "pbe")
    np.testing.assert_array_equal(
        calc.get_forces(water), Calculator(model).get_forces(water)
    )
    assert sorted(tmp_path.iterdir()) == files
    assert files[0].read_bytes() == content
    assert load(tmp_path / "model.pt").dtype == torch.float64


# --- dtype and side effects (C23) ----------------------------------------------------


def test_two_precisions_in_turns_share_no_state(model):
    double, single = Calculator(model), Calculator(model, dtype="float32")
    water = systems.water()
    first = double.get_potential_energy(water), single.get_potential_energy(water)
    assert first[0] != first[1]
    assert first[0] == pytest.approx(first[1], abs=1e-4)
    for _ in range(2):
        double.reset()
        single.reset()
        again = double.get_potential_energy(water), single.get_potential_energy(water)
        assert again == first
    assert model.dtype == torch.float64
    assert double.model is model


def test_large_references_do_not_cost_precision():
    base = make_model([Head("e")])
    heavy = make_model([Head("e")])
    base.set_references({"e": dict.fromkeys(ELEMENTS, 0.0)})
    heavy.set_references({"e": dict.fromkeys(ELEMENTS, -1e5 / 3)})
    water, bent = systems.water(), systems.water()
    bent.positions[1, 1] += 0.1
    expected = fresh(base, bent) - fresh(base, water)
    single = Calculator(heavy, dtype="float32")
    difference = single.get_potential_energy(bent) - single.get_potential_energy(water)
    assert abs(expected) > 1e-3
    assert difference == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_works_without_grad_and_with_frozen_weights(context):
    frozen = make_model()
    expected = Calculator(frozen).get_forces(systems.water())
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    with context():
        forces = Calculator(frozen).get_forces(systems.water())
    np.testing.assert_array_equal(forces, expected)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_results_hold_no_tensor(calc):  # C57
    calc.results_by_head(systems.five_elements(periodic=True))
    calc.get_stress(systems.skewed_pair())
    values = [*calc.results.values(), *calc.parameters.values()]
    assert all(isinstance(v, float | np.ndarray | str | None) for v in values)


def test_settings_are_checked(model):
    for wrong in (
        {"dtype": "float16"},
        {"strategy": "quick"},
        {"threads": 0},
        {"skin": -1.0},
    ):
        with pytest.raises(UserError, match=str(next(iter(wrong.values())))):
            Calculator(model, **wrong)
    with pytest.raises(UserError, match="dict"):
        Calculator({"not": "a model"})


@pytest.mark.parametrize("strategy", ["loop", "batched"])
def test_strategies_agree(model, strategy):
    atoms = systems.skewed_pair()
    calc = Calculator(model, strategy=strategy)
    np.testing.assert_allclose(
        calc.get_forces(atoms), Calculator(model).get_forces(atoms), atol=1e-12
    )
