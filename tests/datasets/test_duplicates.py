from gnnforce.datasets.duplicates import (
    duplicate_frames,
    label_hash,
    structure_hash,
    structure_key,
)
from gnnforce.datasets.labels import LabelSpec, extract_labels


def test_equal_structures_have_equal_keys(h2):
    assert structure_key(h2(0.74, energy=1)) == structure_key(h2(0.74, energy=2))
    assert structure_key(h2(0.74)) == structure_key(h2(0.7400000001))
    assert (
        structure_key(h2(charge=0)) == structure_key(h2()) == structure_key(h2(spin=1.0))
    )


def test_what_differs_has_other_keys(h2):
    keys = {structure_key(h2(length)) for length in (0.74, 0.74001)}
    keys |= {
        structure_key(h2(charge=1)),
        structure_key(h2(spin=3)),
        structure_key(h2(spin=0)),
    }
    swapped = h2()[[1, 0]]
    box = h2()
    box.cell = [5, 5, 5]
    periodic = box.copy()
    periodic.pbc = True
    other = h2()
    other.numbers[0] = 8
    keys |= {structure_key(atoms) for atoms in (swapped, box, periodic, other)}
    assert len(keys) == 9


def test_minus_zero_is_zero(h2):
    atoms = h2()
    atoms.positions[0] = -0.0
    assert structure_key(atoms) == structure_key(h2())


def test_pairs(h2):
    frames = [h2(0.7), h2(0.8), h2(0.7)]
    assert duplicate_frames(frames, [h2(0.8), h2(0.9), h2(0.7)]) == [(1, 0), (0, 2)]


def test_hash_depends_on_order_and_is_the_same_in_every_process(h2):
    frames = [h2(0.7), h2(0.8)]
    assert structure_hash(frames) != structure_hash(frames[::-1])
    assert structure_hash(frames) == "0e708efa9343b9ff5066c62e8791857a"


def test_hash_of_labels_knows_values_masks_and_weights(h2):
    def hashed(*frames):
        specs = [LabelSpec("energy")]
        return label_hash(extract_labels(frames, specs, require={"energy"}))

    frames = [h2(0.7, energy=1.0), h2(0.8, energy=2.0)]
    here = hashed(*frames)
    assert here == hashed(h2(0.9, energy=1.0), h2(0.8, energy=2.0))
    others = [
        frames[::-1],
        [h2(0.7, energy=1.0), h2(0.8, energy=2.5)],
        [h2(0.7, energy=1.0), h2(0.8)],
        [h2(0.7, energy=1.0, weight=2.0), h2(0.8, energy=2.0, weight=1.0)],
    ]
    assert len({here, *(hashed(*other) for other in others)}) == 5
