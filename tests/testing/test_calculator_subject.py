from ase.calculators.emt import EMT
from ase.calculators.harmonic import SpringCalculator
from ase.constraints import FixAtoms

from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.systems import cluster, crystal


def subject(calc):
    return Subject(calc, cluster([29]), crystal([29]), 1e-4, True)


def test_copies_carry_the_calculator():
    tried = subject(EMT())
    for atoms, original in zip(
        tried.structures(), (tried.molecule, tried.solid), strict=True
    ):
        assert atoms.calc is tried.calc
        assert original.calc is None
        atoms.positions += 1
        assert (atoms.positions != original.positions).all()


def test_values_ignore_constraints():
    tried = subject(EMT())
    fixed = tried.molecule.copy()
    fixed.set_constraint(FixAtoms([0]))
    assert (tried.forces(fixed) == tried.forces(tried.molecule)).all()
    assert tried.forces(fixed)[0].any()
    assert type(tried.energy(fixed)) is float


def test_declared_stress():
    assert subject(EMT()).has_stress
    springs = SpringCalculator(cluster([29]).positions, 1.0)
    assert not subject(springs).has_stress
