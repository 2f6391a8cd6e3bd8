import copy

import numpy as np
import pytest
from ase.calculators.emt import EMT

from gnnforce.testing import calculator_behavior as behavior
from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.systems import cluster, crystal


def subject(calc):
    return Subject(calc, cluster([29]), crystal([29]), 1e-4, True)


class WithNan(EMT):
    def calculate(self, *arguments):
        super().calculate(*arguments)
        self.results["forces"][0] = np.nan
        self.results["energy"] = np.inf


class Labels(EMT):
    """Writes into the structure it is given."""

    def calculate(self, atoms=None, *arguments):
        super().calculate(atoms, *arguments)
        atoms.info["seen"] = True


class Deaf(EMT):
    """Answers direct calls with what it knows."""

    def calculate(self, atoms=None, *arguments):
        if not self.results:
            super().calculate(atoms, *arguments)


class Forgetful(EMT):
    """A copy that has lost its way."""

    def __deepcopy__(self, memo):
        twin = EMT()
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        twin.get_property = lambda *_, **__: 0.0
        return twin


class Rude(EMT):
    def get_property(self, name, atoms=None, allow_calculation=True):
        if name == "stress":
            raise RuntimeError("no cell")
        return super().get_property(name, atoms, allow_calculation)


@pytest.mark.parametrize(
    ("check", "calc", "word"),
    [
        (behavior.assert_energy_is_float, WithNan, "inf"),
        (behavior.assert_forces_array, WithNan, "not finite"),
        (behavior.assert_declared_properties, WithNan, "is inf|is "),
        (behavior.assert_structure_unchanged, Labels, "info"),
        (behavior.assert_direct_call, Deaf, r"calculate\(atoms\)"),
        (behavior.assert_copies_work, Forgetful, "deepcopy"),
        (behavior.assert_no_stress_of_molecules, Rude, "raises RuntimeError"),
    ],
)
def test_fault_is_named(check, calc, word):
    check(subject(EMT()))
    with pytest.raises(AssertionError, match=word):
        check(subject(calc()))


def test_structure_at_rest_cannot_show_stale_results():
    still = Subject(EMT(), cluster([29]), cluster([29]), 1e-4, True)
    still.molecule.positions *= 100  # no forces left
    with pytest.raises(AssertionError, match="forces are zero"):
        behavior.assert_no_stale_results(still)


def test_array_kept_from_another_size_is_named():
    class Keeper(EMT):
        def calculate(self, *arguments):
            super().calculate(*arguments)
            self.results["energies"] = np.zeros(99)

    with pytest.raises(AssertionError, match="energies of 99 atoms"):
        behavior.assert_sizes_follow(subject(Keeper()))
