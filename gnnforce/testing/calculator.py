"""Checks for any ASE calculator: types, units, signs, caching and symmetry.

For your own calculator::

    from gnnforce.testing.calculator import check_calculator
    from gnnforce.testing.checks import failures

    assert not failures(check_calculator(MyCalculator(), elements=[29]))
"""

from collections.abc import Sequence
from functools import partial

from ase import Atoms
from ase.calculators.calculator import BaseCalculator

from gnnforce.errors import UserError
from gnnforce.testing import calculator_behavior as behavior
from gnnforce.testing import calculator_numbers as numbers
from gnnforce.testing.calculator_subject import Subject
from gnnforce.testing.checks import Check, run_checks
from gnnforce.testing.systems import cluster, crystal

CHECKS = {
    "energy is a float": behavior.assert_energy_is_float,
    "free energy": behavior.assert_free_energy,
    "forces are a float64 array": behavior.assert_forces_array,
    "declared properties": behavior.assert_declared_properties,
    "answers belong to the caller": behavior.assert_answers_are_copies,
    "structure is not changed": behavior.assert_structure_unchanged,
    "no stale results": behavior.assert_no_stale_results,
    "other sizes": behavior.assert_sizes_follow,
    "direct calls": behavior.assert_direct_call,
    "no stress of molecules": behavior.assert_no_stress_of_molecules,
    "copies": behavior.assert_copies_work,
    "forces are gradients": numbers.assert_forces_are_gradients,
    "stress is a gradient": numbers.assert_stress_is_gradient,
    "energies sum up": numbers.assert_energies_sum,
    "no net force": numbers.assert_no_net_force,
    "rotation": numbers.assert_rotation,
    "permutation": numbers.assert_permutation,
    "translation and wrapping": numbers.assert_translation,
    "supercell": numbers.assert_supercell,
}


def check_calculator(
    calc: BaseCalculator,
    molecule: Atoms | None = None,
    solid: Atoms | None = None,
    *,
    elements: Sequence[int] = (29,),
    tolerance: float = 1e-4,
    extensive: bool = True,
) -> list[Check]:
    """Check an ASE calculator from outside, by what it answers.

    Derivatives are compared with central differences of the energy with steps of 1e-3.
    A single-precision calculator needs a ``tolerance`` of about 1e-2. Checks of the
    stress are left out when the calculator does not declare one.

    Args:
        calc: Any calculator that needs no files of its own; its results are reset.
        molecule: An open structure of at least three atoms it can evaluate.
        solid: A periodic structure with a low symmetry and forces; its cell should be
            smaller than the range of the interactions.
        elements: Atomic numbers of the structures made when none are given.
        tolerance: See :class:`Subject`.
        extensive: False leaves out the supercell, for models with intensive energies.

    Returns:
        One outcome a check.

    Raises:
        UserError: For a molecule of fewer than three atoms, or a solid without a cell.

    Example:
        >>> from ase.calculators.emt import EMT
        >>> checks = check_calculator(EMT(), elements=[29])
        >>> [check.name for check in checks if not check.passed]
        []
    """
    open_structure = cluster(elements) if molecule is None else molecule.copy()
    periodic = crystal(elements) if solid is None else solid.copy()
    if len(open_structure) < 3:
        raise UserError("the molecule needs at least three atoms to be checked with")
    if not periodic.pbc.all() or periodic.cell.rank < 3:
        raise UserError("the solid needs three periodic directions and a cell")
    subject = Subject(calc, open_structure, periodic, tolerance, extensive)
    return run_checks({name: partial(check, subject) for name, check in CHECKS.items()})
