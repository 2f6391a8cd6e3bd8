import pytest

from gnnforce.testing import locality


@pytest.mark.parametrize(
    ("law", "fault", "word"),
    [
        (locality.assert_batch_equals_singles, "batch mean", "of a batch"),
        (locality.assert_batch_members_independent, "batch mean", "of a batch"),
        (locality.assert_supercell_repeats, "periodic images", "supercell|images"),
        (locality.assert_far_fragments_add, "batch mean", "forces|fragments"),
        (locality.assert_isolated_atoms_are_references, "lone atom", "isolated atom"),
        (locality.assert_smooth_at_cutoff, "cosine", "not smooth"),
    ],
)
def test_law_holds_and_its_break_is_named(faulty, law, fault, word):
    law(faulty("none"))
    with pytest.raises(AssertionError, match=word):
        law(faulty(fault))
