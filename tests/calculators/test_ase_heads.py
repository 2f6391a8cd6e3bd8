"""Heads, members, precision and settings of the calculator."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.calculator import (
    PropertyNotImplementedError,
    all_properties,
)

from gnnforce.calculators.ase import Calculator
from gnnforce.errors import (
    UnknownHeadError,
    UserError,
)
from gnnforce.models.checkpoint import load
from gnnforce.readouts.head import Head
from gnnforce.testing import systems
from gnnforce.testing.measure import evaluate

ELEMENTS = [1, 6, 7, 8, 14, 18, 29]
EXTRA = {
    "energy_std": (),
    "forces_std": ("n", 3),
    "energy_members": (3,),
    "forces_members": (3, "n", 3),
}
EXTRA_STRESS = {"stress_std": (6,), "stress_members": (3, 6)}


def fresh(model, atoms, head=None):
    return Calculator(model, head=head).get_potential_energy(atoms.copy())


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


def test_heads_by_name_and_number_on_every_route(tmp_path, make_model):
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


def test_large_references_do_not_cost_precision(make_model):
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
def test_works_without_grad_and_with_frozen_weights(context, make_model):
    frozen = make_model()
    expected = Calculator(frozen).get_forces(systems.water())
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    with context():
        forces = Calculator(frozen).get_forces(systems.water())
    np.testing.assert_array_equal(forces, expected)
    assert not any(p.requires_grad for p in frozen.parameters())


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


def test_declared_names_and_instances(model, make_model):  # C20
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


def test_heads_of_mixed_kinds_have_energies_of_atoms_where_they_exist(make_model):
    kinds = [Head("sum"), Head("mean", kind="node_mean"), Head("pool", kind="pooled")]
    mixed = make_model(kinds)
    water = systems.water()
    for head in mixed.heads:
        calc = Calculator(mixed, head=head.name)
        energy = calc.get_potential_energy(water)
        assert ("energies" in calc.results) == (head.kind == "node_sum")
        by_head = calc.results_by_head(water)
        assert by_head[head.name]["energy"] == pytest.approx(energy, abs=1e-12)
        if head.kind != "node_sum":
            with pytest.raises(PropertyNotImplementedError, match="energies"):
                calc.get_potential_energies(water)
