import numpy as np
import pytest
from ase import units
from ase.calculators.emt import EMT

from gnnforce.testing import calculator_numbers as numbers
from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.systems import cluster, crystal


def subject(calc, extensive=True):
    return Subject(calc, cluster([29]), crystal([29]), 1e-4, extensive)


class Scaled(EMT):
    """Multiplies one result."""

    def __init__(self, **factors):
        super().__init__()
        self.factors = factors

    def calculate(self, *arguments):
        super().calculate(*arguments)
        for name, factor in self.factors.items():
            if name in self.results:
                self.results[name] = self.results[name] * factor


class Position(EMT):
    """Depends on where the first atom is, consistently or not."""

    def calculate(self, *arguments):
        super().calculate(*arguments)
        self.results["energy"] += 0.01 * float(self.atoms.positions[0, 0] ** 2)
        self.results["forces"][0, 0] -= 0.02 * float(self.atoms.positions[0, 0])


class Average(EMT):
    def calculate(self, *arguments):
        super().calculate(*arguments)
        self.results["energy"] /= len(self.atoms)


@pytest.mark.parametrize(
    ("check", "calc", "word"),
    [
        (numbers.assert_forces_are_gradients, Scaled(forces=1.01), "of atom 0"),
        (numbers.assert_stress_is_gradient, Scaled(stress=-1), "sign is opposite"),
        (numbers.assert_stress_is_gradient, Scaled(stress=1 / units.GPa), "in GPa"),
        (numbers.assert_stress_is_gradient, Scaled(stress=10 / units.GPa), "in kbar"),
        (numbers.assert_energies_sum, Scaled(energies=2.0), "sum of energies"),
        (numbers.assert_no_net_force, Position(), "sum of forces"),
        (numbers.assert_rotation, Position(), "turned"),
        (numbers.assert_permutation, Position(), "differ"),
        (numbers.assert_translation, Position(), "moved energies"),
        (numbers.assert_supercell, Average(), "two cells"),
    ],
)
def test_fault_is_named(check, calc, word):
    check(subject(EMT()))
    with pytest.raises(AssertionError, match=word):
        check(subject(calc))


def test_intensive_energies_can_be_told():
    numbers.assert_supercell(subject(Average(), extensive=False))


def test_tolerance_is_used():
    nearly = subject(Scaled(forces=1.001))
    with pytest.raises(AssertionError):
        numbers.assert_forces_are_gradients(nearly)
    loose = Subject(nearly.calc, nearly.molecule, nearly.solid, 1e-2, True)
    numbers.assert_forces_are_gradients(loose)
    assert np.isfinite(loose.energy(loose.solid))
