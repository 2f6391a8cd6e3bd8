"""Every contract that a force field must pass, whatever its backbone and heads.

For your own backbone::

    from gnnforce.testing.contracts import check_model
    from gnnforce.testing.checks import failures

    assert not failures(check_model(ForceField(MyBackbone([1, 6, 8]), [Head("energy")])))
"""

from collections.abc import Callable, Sequence
from functools import partial

from gnnforce.errors import UserError, did_you_mean
from gnnforce.models.force_field import ForceField
from gnnforce.testing import conservation, locality, symmetry
from gnnforce.testing.checks import Check, run_checks

Contract = Callable[[ForceField], None]

CONTRACTS: dict[str, Contract] = {
    "rotation": symmetry.assert_rotation_equivariant,
    "reflection": symmetry.assert_reflection_equivariant,
    "translation": symmetry.assert_translation_invariant,
    "permutation": symmetry.assert_permutation_equivariant,
    "wrapping": symmetry.assert_wrapping_invariant,
    "open cell": symmetry.assert_open_cell_ignored,
    "batch equals singles": locality.assert_batch_equals_singles,
    "batch members are independent": locality.assert_batch_members_independent,
    "supercell": locality.assert_supercell_repeats,
    "far fragments": locality.assert_far_fragments_add,
    "isolated atoms": locality.assert_isolated_atoms_are_references,
    "smooth cutoff": locality.assert_smooth_at_cutoff,
    "forces are gradients": conservation.assert_forces_are_gradients,
    "stress is a gradient": conservation.assert_stress_is_gradient,
    "no net force": conservation.assert_no_net_force,
    "strategies agree": conservation.assert_strategies_agree,
    "no stress of molecules": conservation.assert_molecules_have_no_stress,
    "unknown elements": conservation.assert_unknown_elements_refused,
    "no trace": conservation.assert_evaluation_leaves_no_trace,
    "parameters learn from forces": conservation.assert_parameters_learn_from_forces,
    "copies": conservation.assert_copies_agree,
}


def check_model(model: ForceField, names: Sequence[str] | None = None) -> list[Check]:
    """Run contracts over a model.

    Args:
        model: Any force field, trained or not; it is not changed. In float64 the
            tolerances are 1e-8, in float32 1e-4 (relative above one).
        names: Keys of ``CONTRACTS``; all when ``None``.

    Returns:
        One outcome a contract.

    Raises:
        UserError: For a name that is no contract.

    Example:
        >>> import torch
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([1, 8], n_features=8), [Head("energy")])
        >>> check_model(model.to(torch.float64), ["rotation"])
        [Check(name='rotation', passed=True, message='')]
    """
    chosen = list(CONTRACTS) if names is None else list(names)
    for name in chosen:
        if name not in CONTRACTS:
            raise UserError(f"no contract {name!r}.{did_you_mean(name, CONTRACTS)}")
    return run_checks({name: partial(CONTRACTS[name], model) for name in chosen})
