import pytest

from gnnforce.testing import symmetry


@pytest.mark.parametrize(
    ("law", "fault", "word"),
    [
        (symmetry.assert_rotation_equivariant, "direction", "turned"),
        (symmetry.assert_reflection_equivariant, "handed", "turned"),
        (symmetry.assert_translation_invariant, "absolute position", "after a shift"),
        (symmetry.assert_permutation_equivariant, "atom number", "permuted"),
        (symmetry.assert_wrapping_invariant, "periodic images", "unwrapped"),
        (symmetry.assert_open_cell_ignored, "reads cell", "open cell"),
    ],
)
def test_law_holds_and_its_break_is_named(faulty, law, fault, word):
    law(faulty("none"))
    with pytest.raises(AssertionError, match=word):
        law(faulty(fault))
