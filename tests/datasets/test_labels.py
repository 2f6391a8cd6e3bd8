import numpy as np
import pytest
from ase import Atoms
from ase.constraints import FixAtoms

from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError

KCAL = 23.060548
HARTREE = 27.211386


def h2_pair(h2, energy_factor=1.0, force_factor=1.0):
    """Two frames of C28: slope and forces agree (0.5 eV/Ang)."""
    pairs = [(0.74, -1.000), (0.80, -0.970)]
    return [h2(r, energy=energy_factor * e, force=-0.5 * force_factor) for r, e in pairs]


@pytest.mark.parametrize(
    ("unit", "factor"), [("eV", 1.0), ("kcal/mol", KCAL), ("Hartree", 1 / HARTREE)]
)
def test_units(h2, unit, factor):  # C28
    frames = h2_pair(h2, factor, factor)
    table = extract_labels(frames, [LabelSpec("energy", energy_unit=unit)])
    labels = [frame["energy"] for frame in table.labels]
    np.testing.assert_allclose([x.energy for x in labels], [-1.0, -0.97], atol=1e-6)
    np.testing.assert_allclose(labels[1].forces, [[0, 0, 0.5], [0, 0, -0.5]], atol=1e-6)
    assert table.units == {"energy": {"energy": unit, "length": "Ang"}}
    assert table.warnings == []


def test_mismatched_units_warn(h2):  # C28
    frames = h2_pair(h2, energy_factor=KCAL)
    with pytest.warns(UserWarning, match="energy changes 23.1 times"):
        table = extract_labels(frames, [LabelSpec("energy")])
    assert any(line.startswith("warning: head 'energy'") for line in table.summary())


def test_numbers_in_a_file(write):  # C32
    head = "1\nProperties=species:S:1:pos:R:3 "
    path = write(f"{head}energy=-1\nH 0 0 0\n")
    assert (
        extract_labels(read_frames(path), [LabelSpec("a")]).labels[0]["a"].energy == -1.0
    )
    path = write(f"{head}REF_energy=-1.0D+02\nH 0 0 0\n")
    assert (
        extract_labels(read_frames(path), [LabelSpec("a")]).labels[0]["a"].energy
        == -100.0
    )
    for key in ("REF_energy", "energy"):
        path = write(f"{head}{key}=-1,5\nH 0 0 0\n")
        with pytest.raises(DataError, match=r"frame 0: energy of head 'a'.*with a point"):
            extract_labels(read_frames(path), [LabelSpec("a")])


def test_decimal_comma_is_not_two_states(write):  # C32
    path = write("1\nProperties=species:S:1:pos:R:3 energy=-1,5\nH 0 0 0\n")
    heads = [LabelSpec("s0", energy="energy"), LabelSpec("s1", energy="energy")]
    with pytest.raises(DataError, match="with a point"):
        extract_labels(read_frames(path), heads)
    path = write('1\nProperties=species:S:1:pos:R:3 energy="-1 5"\nH 0 0 0\n')
    labels = extract_labels(read_frames(path), heads).labels[0]
    assert (labels["s0"].energy, labels["s1"].energy) == (-1.0, 5.0)


def test_stress_forms_in_a_file(write):  # C27
    cell = 'Lattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3'
    nine = "0.01 0.06 0.05 0.06 0.02 0.04 0.05 0.04 0.03"
    virial = "-1.25 -7.5 -6.25 -7.5 -2.5 -5 -6.25 -5 -3.75"
    forms = [
        f'stress="{nine}"',
        'stress="0.01 0.02 0.03 0.04 0.05 0.06"',
        f'REF_stress="{nine}"',
        'REF_stress="0.01 0.02 0.03 0.04 0.05 0.06"',
        f'virial="{virial}"',
        f'virial="{virial}" stress="{nine}"',
    ]
    text = "".join(f"1\n{cell} energy=0 {form}\nH 0 0 0\n" for form in forms)
    frames = read_frames(write(text))
    spec = LabelSpec("a")
    found = [extract_labels([atoms], [spec]).labels[0]["a"].stress for atoms in frames]
    for stress in found:
        np.testing.assert_allclose(stress, found[0], rtol=1e-12)
    assert found[0][0, 1] == 0.06
    bad = {
        f'stress="{nine.replace("0.06 0.02", "0.07 0.02")}"': "not symmetric",
        f'stress="{nine}" virial="{nine}"': "contradict",
        'stress="1 2 3"': "give 6 numbers",
    }
    for form, message in bad.items():
        frames = read_frames(
            write(f"1\n{cell} energy=0\nH 0 0 0\n1\n{cell} {form}\nH 0 0 0\n")
        )
        with pytest.raises(DataError, match=f"frame 1: .*{message}"):
            extract_labels(frames, [spec])
    no_cell = f'1\nProperties=species:S:1:pos:R:3 energy=0 stress="{nine}"\nH 0 0 0\n'
    with pytest.raises(DataError, match=r"frame 0: head 'a' has a stress.*no cell"):
        extract_labels(read_frames(write(no_cell)), [spec])


def test_states_of_a_file_keep_their_order(write):
    text = (
        '1\nProperties=species:S:1:pos:R:3:f:R:9 e="3 1 2"\nH 0 0 0 1 2 3 4 5 6 7 8 9\n'
    )
    specs = [LabelSpec(name, energy="e", forces="f") for name in ("s2", "s0", "s1")]
    table = extract_labels(read_frames(write(text)), specs, require={"energy", "forces"})
    found = [table.labels[0][spec.head] for spec in specs]
    assert [x.energy for x in found] == [3.0, 1.0, 2.0]
    assert [x.forces[0].tolist() for x in found] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert table.keys_used["s1"] == {"energy": "e[2]", "forces": "f[2]"}


def test_missing_labels_are_none_and_counted(h2):
    frames = [
        h2(a_energy=1.0, force=0.1),
        h2(a_energy=2.0, c_energy=3.0),
        h2(c_energy=1.0),
    ]
    specs = [LabelSpec("a", forces="forces"), LabelSpec("c")]
    table = extract_labels(frames, specs, require={"energy", "forces"})
    assert table.counts == {
        "a": {"energy": 2, "forces": 1, "stress": 0},
        "c": {"energy": 2, "forces": 0, "stress": 0},
    }
    assert table.labels[0]["c"].energy is None
    text = "\n".join(table.summary())
    assert "3 frames read" in text
    assert "head 'a': energy in 2 of 3 frames (from 'a_energy')" in text
    assert "no stress" in text


def test_a_label_found_nowhere_lists_the_keys(h2):
    frames = [h2(REF_energy=1.0, name="x")]
    with pytest.raises(DataError, match="info: REF_energy, name"):
        extract_labels(frames, [LabelSpec("a", energy="dft_enrgy")])
    with pytest.raises(DataError, match="there are no frames"):
        extract_labels([], [LabelSpec("a")])


def test_labels_of_constrained_atoms(write):
    text = (
        "2\nProperties=species:S:1:pos:R:3:forces:R:3:move_mask:L:1 energy=0\n"
        "H 0 0 0 0 0 5 F\nH 0 0 1 0 0 -5 T\n"
    )
    frames = read_frames(write(text))
    assert isinstance(frames[0].constraints[0], FixAtoms)
    labels = extract_labels(frames, [LabelSpec("a")]).labels[0]["a"]
    np.testing.assert_array_equal(labels.forces, [[0, 0, 5], [0, 0, -5]])


def test_bad_frames_are_refused_by_number(h2):  # C42
    frames = [h2(energy=0.0, force=0.5), h2(energy=0.0, force=np.inf)]
    with pytest.raises(DataError, match=r"frame 1: forces of head 'a'.*infinite"):
        extract_labels(frames, [LabelSpec("a")])
    frames[1] = h2(energy=np.nan)
    with pytest.raises(DataError, match=r"frame 1: energy of head 'a'.*nan"):
        extract_labels(frames, [LabelSpec("a")])


def test_bad_frames_are_dropped_and_counted(h2):  # C42
    sizes = [0.1, 0.5, 1e4, 1e30, np.inf, 0.9]
    frames = [h2(0.7 + 0.2 * i, energy=0.0, force=f) for i, f in enumerate(sizes)]
    table = extract_labels(frames, [LabelSpec("a")], forces_limit=100.0, on_bad="drop")
    assert list(table.dropped) == [2, 3, 4]
    assert table.counts["a"] == {"energy": 3, "forces": 3, "stress": 0}
    assert table.largest_force == (0.9, 5)
    text = "\n".join(table.summary())
    assert "dropped 3 frames (frame 2: forces" in text
    assert "largest force 0.9 eV/Ang in frame 5" in text
    with pytest.raises(DataError, match=r"all 1 frames were dropped.*frame 0"):
        extract_labels(frames[4:5], [LabelSpec("a")], on_bad="drop")


def test_the_limit_is_an_option(h2):
    frames = [h2(energy=0.0, force=1e4)]
    table = extract_labels(frames, [LabelSpec("a")], forces_limit=1e5)
    assert table.largest_force == (1e4, 0)
    with pytest.raises(DataError, match="limit of 1000"):
        extract_labels(frames, [LabelSpec("a")])


@pytest.mark.parametrize("key", ["config_weight", "frame_weight", "weight"])
def test_weights(h2, key):  # C36
    frames = [h2(energy=0.0, **{key: 2}), h2(energy=1.0), h2(energy=1.0, **{key: 0.0})]
    table = extract_labels(frames, [LabelSpec("a")])
    assert table.weights.tolist() == [2.0, 1.0, 0.0]
    assert f"frame weights from {key!r}: 0 to 2" in table.summary()


@pytest.mark.parametrize("weight", [-1, np.nan, [1.0, 2.0], "heavy"])
def test_weights_that_are_refused(h2, weight):  # C36
    frames = [h2(energy=0.0, w=1.0), h2(energy=1.0, w=weight)]
    with pytest.raises(DataError, match="frame 1: 'w'"):
        extract_labels(frames, [LabelSpec("a")], weight_key="w", on_bad="drop")
    with pytest.raises(DataError, match="no frame has the weight 'u'"):
        extract_labels(frames, [LabelSpec("a")], weight_key="u")


def test_frames_are_not_changed(h2):
    atoms = h2(energy="-1.0D+02", force=0.5)
    atoms.arrays["forces"].setflags(write=False)
    atoms.arrays["forces"] = atoms.arrays["forces"][::-1]
    before = atoms.arrays["forces"].tobytes()
    table = extract_labels([atoms], [LabelSpec("a", energy_unit="Hartree")])
    table.labels[0]["a"].forces[:] = 7
    assert atoms.arrays["forces"].tobytes() == before
    assert atoms.info == {"energy": "-1.0D+02"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"on_bad": "skip"}, "on_bad is 'error' or 'drop'"),
        ({"forces_limit": 0}, "forces_limit must be a positive number"),
        ({"allow_nan": ["force"]}, "Did you mean 'forces'"),
    ],
)
def test_wrong_options(h2, option, message):
    with pytest.raises(DataError, match=message):
        extract_labels([h2(energy=0.0)], [LabelSpec("a")], **option)


def test_subset_keeps_what_belongs_to_its_frames(h2):
    frames = [h2(energy=float(i), weight=i, force=f) for i, f in enumerate([0, 1, 1e9])]
    part = extract_labels(frames, [LabelSpec("a")], on_bad="drop").subset([2, 1])
    assert [x["a"].energy for x in part.labels] == [None, 1.0]
    assert part.weights.tolist() == [2.0, 1.0]
    assert list(part.dropped) == [0]
    assert len(part) == 2


def test_one_atom_is_no_special_case():
    atoms = Atoms("H", [[0, 0, 0]], info={"energy": -13.6})
    atoms.arrays["forces"] = np.array([[0.0, 0, 0.25]])
    labels = extract_labels([atoms], [LabelSpec("a")]).labels[0]["a"]
    assert labels.forces.shape == (1, 3)
    assert labels.forces_mask.shape == (1,)
