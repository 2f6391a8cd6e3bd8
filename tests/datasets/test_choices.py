import numpy as np
import pytest

from gnnforce.datasets.choices import choose_keys
from gnnforce.datasets.keys import LabelSpec
from gnnforce.errors import DataError


def chosen(frames, *specs, require=()):
    keys = choose_keys(frames, specs, require).keys
    return {pair: (choice.text, choice.state) for pair, choice in keys.items()}


def test_default_order_and_names_of_heads(h2):
    frames = [h2(REF_energy=1), h2(dft_energy=2), h2(REF_energy=3)]
    assert chosen(frames, LabelSpec("a")) == {("a", "energy"): ("REF_energy", None)}
    frames = [h2(energy=1, energy_a=2, b_energy=3)]
    found = chosen(frames, LabelSpec("a"), LabelSpec("b"))
    assert found == {
        ("a", "energy"): ("energy_a", None),
        ("b", "energy"): ("b_energy", None),
    }


def test_what_a_file_of_predictions_holds_is_not_taken_for_labels(h2):
    frames = [h2(energy=1, energy_energy=2)]
    assert chosen(frames, LabelSpec("energy")) == {("energy", "energy"): ("energy", None)}
    assert chosen([h2(energy_xtb=1)], LabelSpec("xtb"))["xtb", "energy"] == (
        "energy_xtb",
        None,
    )


def test_one_key_for_all_frames(h2):
    """Frames of another level of theory are not mixed in."""
    frames = [h2(energy=1), h2(REF_energy=2)]
    assert chosen(frames, LabelSpec("a"))["a", "energy"] == ("energy", None)


def test_heads_take_states_in_the_order_of_the_heads(h2):
    frames = [h2(energy=np.array([[1.0, 2.0]]))]
    found = chosen(frames, LabelSpec("b"), LabelSpec("a"))
    assert found == {("b", "energy"): ("energy", 0), ("a", "energy"): ("energy", 1)}


def test_wrong_number_of_states(h2):
    specs = [LabelSpec(name, energy="energy") for name in "abc"]
    with pytest.raises(DataError, match="holds 2 states, but 3 heads"):
        choose_keys([h2(energy=[1.0, 2.0])], specs, ())


def test_two_heads_do_not_share_a_label_without_being_told(h2):
    frames = [h2(energy=1.0)]
    with pytest.raises(DataError, match="heads 'a' and 'b' would both read energy"):
        choose_keys(frames, [LabelSpec("a"), LabelSpec("b")], {"energy"})
    told = [LabelSpec("a", energy="energy"), LabelSpec("b", energy="energy")]
    assert len(choose_keys(frames, told, {"energy"}).keys) == 2


def test_a_label_belongs_to_the_head_that_names_it(h2):  # C45
    frames = [h2(energy=1.0, force=0.5, cc_e=2.0)]
    specs = [
        LabelSpec("pbe", energy="energy", forces="forces"),
        LabelSpec("cc", energy="cc_e"),
    ]
    choices = choose_keys(frames, specs, {"energy", "forces"})
    assert ("cc", "forces") not in choices.keys
    assert "head 'cc' has no forces" in choices.remarks[0]


def test_required_labels(h2):
    frames = [h2(energy=1.0)]
    with pytest.raises(DataError, match="no frame has forces of head 'a' under any of"):
        choose_keys(frames, [LabelSpec("a")], {"energy", "forces"})
    named = [LabelSpec("a", energy="enrgy")]
    with pytest.raises(
        DataError, match=r"'enrgy'; the frames have info: energy.*mean 'energy'"
    ):
        choose_keys(frames, named, {"energy"})
    assert choose_keys(frames, named, ()).keys == {}  # a validation set without that head
    assert "no frame has energy 'enrgy'" in choose_keys(frames, named, ()).remarks[0]


def test_one_head_of_several_misses_its_key(h2):  # C45
    specs = [LabelSpec("a", energy="energy"), LabelSpec("c", energy="cc_energy")]
    with pytest.raises(DataError, match=r"no frame has energy of head 'c'.*'cc_energy'"):
        choose_keys([h2(energy=1.0)], specs, {"energy"})


def test_stress_is_there_as_virial_too(h2):
    frames = [h2(energy=1.0, virial=np.eye(3))]
    assert ("a", "virial") in choose_keys(frames, [LabelSpec("a")], {"stress"}).keys
    with pytest.raises(DataError, match="no frame has stress"):
        choose_keys([h2(energy=1.0)], [LabelSpec("a")], {"stress"})


@pytest.mark.parametrize(
    ("specs", "require", "message"),
    [
        ([], (), "at least one head"),
        ([LabelSpec("a"), LabelSpec("a")], (), "'a' are named twice"),
        ([LabelSpec("a")], "energy", "require is a set"),
        ([LabelSpec("a")], {"force"}, "Did you mean 'forces'"),
    ],
)
def test_wrong_arguments(h2, specs, require, message):
    with pytest.raises(DataError, match=message):
        choose_keys([h2(energy=1.0)], specs, require)
