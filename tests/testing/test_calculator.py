"""Good calculators pass; each fault is caught by the check that is meant for it."""

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.calculator import Calculator, PropertyNotImplementedError
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.stress import full_3x3_to_voigt_6_stress

from gnnforce.errors import UserError
from gnnforce.testing.calculator import CHECKS, check_calculator
from gnnforce.testing.checks import failures


def lennard_jones():
    return LennardJones(sigma=1.5, epsilon=0.1, rc=6.0, smooth=True)


class Faulty(Calculator):
    """Lennard-Jones with one fault at a time."""

    implemented_properties = ["energy", "free_energy", "forces", "stress", "energies"]  # noqa: RUF012

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.kept = None

    def calculate(self, atoms=None, properties=None, system_changes=None):
        super().calculate(atoms, properties, system_changes)
        inner = lennard_jones()
        plain = Atoms(self.atoms)
        if self.fault == "wraps":
            atoms.wrap()
        if self.fault == "wrapping matters":
            plain.positions *= 1 + 1e-3 * (abs(plain.positions) > 20)
        inner.calculate(plain, ["energy", "forces", "stress"])
        self.results = dict(inner.results)
        self.results.pop("stresses", None)
        self._spoil()

    def _spoil(self):  # noqa: C901, PLR0912
        results, fault = self.results, self.fault
        if fault == "float32 energy":
            results["energy"] = np.float32(results["energy"])
        elif fault == "array energy":
            results["energy"] = np.array([results["energy"]])
        elif fault == "no free energy":
            del results["free_energy"]
        elif fault == "float32 forces":
            results["forces"] = results["forces"].astype(np.float32)
        elif fault == "fortran forces":
            results["forces"] = np.asfortranarray(results["forces"])
        elif fault == "forces sign":
            results["forces"] = -results["forces"]
        elif fault == "one force":
            results["forces"][0] += 0.1
        elif fault == "energies":
            results["energies"] = results["energies"] * 2
        elif fault == "molecule stress":
            results.setdefault("stress", np.zeros(6))
        elif fault == "direction":
            results["energy"] += 0.1 * self.atoms.positions[:, 0].sum()
            results["forces"] = results["forces"] - [0.1, 0, 0]
        elif fault == "order":
            results["energy"] += 0.01 * float(self.atoms.numbers[0] > 0)
            results["forces"] = np.roll(results["forces"], 1, axis=0)
        elif "stress" in results:
            self._spoil_stress()

    def _spoil_stress(self):
        stress = self.results["stress"]
        spoiled = {
            "stress in GPa": stress / units.GPa,
            "stress sign": -stress,
            "stress order": stress[[0, 1, 2, 5, 3, 4]],
            "stress 3x3": np.ones((3, 3)) * stress[0],
        }
        self.results["stress"] = spoiled.get(self.fault, stress)


class Stale(LennardJones):
    """Never looks at what changed."""

    def check_state(self, atoms, tol=1e-15):
        changes = super().check_state(atoms, tol)
        return changes if "numbers" in changes or self.atoms is None else []


class OwnCopy(LennardJones):
    """Hands out its own arrays."""

    def get_property(self, name, atoms=None, allow_calculation=True):
        super().get_property(name, atoms, allow_calculation)
        return self.results[name]


@pytest.mark.parametrize(
    ("calc", "elements"), [(EMT(), [29]), (EMT(), [13, 79]), (lennard_jones(), [18])]
)
def test_good_calculators_pass(calc, elements):
    checks = check_calculator(calc, elements=elements)
    assert not failures(checks)
    assert [check.name for check in checks] == list(CHECKS)


def failed(calc):
    checks = check_calculator(calc, elements=[18])
    return {check.name: check.message for check in checks if not check.passed}


def test_the_faulty_one_without_fault_passes():
    assert failed(Faulty("none")) == {}


@pytest.mark.parametrize(
    ("fault", "check", "word"),
    [
        ("float32 energy", "energy is a float", "float32"),
        ("array energy", "energy is a float", "ndarray"),
        ("no free energy", "free energy", "no free_energy"),
        ("no free energy", "declared properties", "free_energy"),
        ("float32 forces", "forces are a float64 array", "float32"),
        ("fortran forces", "forces are a float64 array", "contiguous"),
        ("forces sign", "forces are gradients", "force"),
        ("one force", "no net force", "sum of forces"),
        ("energies", "energies sum up", "sum of energies"),
        ("molecule stress", "no stress of molecules", "has the stress"),
        ("direction", "rotation", "differ"),
        ("direction", "translation and wrapping", "differ"),
        ("order", "forces are gradients", "force"),
        ("stress in GPa", "stress is a gradient", "in GPa"),
        ("stress sign", "stress is a gradient", "sign is opposite"),
        ("stress order", "stress is a gradient", "dE/dstrain"),
        ("stress 3x3", "stress is a gradient", "shape"),
        ("wraps", "structure is not changed", "positions"),
        ("wrapping matters", "translation and wrapping", "differ"),
    ],
)
def test_faults_are_caught_and_named(fault, check, word):
    found = failed(Faulty(fault))
    assert check in found
    assert word in found[check]


def test_stale_results_are_caught():
    found = failed(Stale(sigma=1.5, epsilon=0.1, rc=6.0, smooth=True))
    assert "do not change" in found["no stale results"]


def test_shared_arrays_are_caught():
    found = failed(OwnCopy(sigma=1.5, epsilon=0.1, rc=6.0, smooth=True))
    assert set(found) == {"answers belong to the caller"}


def test_calculator_without_stress_is_fine():
    class Plain(Faulty):
        implemented_properties = ["energy", "free_energy", "forces"]  # noqa: RUF012

    checks = {c.name: c.passed for c in check_calculator(Plain("none"), elements=[18])}
    assert all(checks.values())


def test_own_structures_and_refusals():
    water = Atoms("Ar3", [[0, 0, 0], [1.7, 0, 0], [0, 1.8, 0]])
    assert not failures(check_calculator(lennard_jones(), water, elements=[18]))
    with pytest.raises(UserError, match="three atoms"):
        check_calculator(lennard_jones(), water[:2])
    with pytest.raises(UserError, match="periodic"):
        check_calculator(lennard_jones(), water, water)


def test_errors_of_a_calculator_do_not_stop_the_checks():
    class Broken(Faulty):
        def calculate(self, *_):
            raise PropertyNotImplementedError("nothing here")

    checks = check_calculator(Broken("none"), elements=[18])
    assert len(checks) == len(CHECKS)
    assert sum(not check.passed for check in checks) > 10


def test_voigt_order_is_that_of_ase():
    matrix = np.array([[0.0, 5, 4], [5, 1, 3], [4, 3, 2]])
    assert full_3x3_to_voigt_6_stress(matrix).tolist() == [0, 1, 2, 3, 4, 5]
