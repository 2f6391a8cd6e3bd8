import re

import numpy as np
import pytest
from ase import Atoms

from gnnforce.datasets.labels import LabelSpec, extract_labels
from gnnforce.datasets.references import fit_references
from gnnforce.errors import ConfigError, DataError


def water(energy, shift=0.0):
    positions = [[0, 0, 0], [0.96 + shift, 0, 0], [-0.24, 0.93, 0]]
    return Atoms("OH2", positions, info={"energy": energy})


def atom(symbol, energy, **info):
    return Atoms(symbol, [[0, 0, 0]], info={"energy": energy, **info})


def fit(frames, elements, heads=("a",), specs=None, **options):
    table = extract_labels(frames, specs or [LabelSpec("a")], require=())
    return fit_references(frames, table, heads, elements, **options)


@pytest.mark.parametrize(
    "given",
    [{"H": -13.6, "O": -432}, {8: -432, 1: -13.6}, {"1": -13.6}, {"a": {"H": -13.6}}],
)
def test_given_energies_with_elements_to_spare(h2, given):  # C30
    result = fit([h2(energy=-31.0)], [1], given=given)
    assert result.table["a"][1] == -13.6
    assert result.origin == {"a": "given"}


def test_a_missing_element_is_named():  # C30
    with pytest.raises(
        ConfigError, match="references of head 'a' lack O; give an energy"
    ):
        fit([water(-500.0)], [1, 8], given={"H": -13.6})


def test_one_atom_frames_and_the_account_adds_up(h2):  # C30
    frames = [
        atom("H", -13.6, config_type="IsolatedAtom"),
        atom("H", 0.0, charge=1),
        h2(energy=-31.0),
        h2(0.8),
    ]
    result = fit(frames, [1])
    assert result.table == {"a": {1: -13.6}}
    assert result.origin == {"a": "isolated atoms"}
    assert result.taken == [0]
    found = re.search(
        r"of (\d) frames (\d) taken as E0, (\d) used, (\d) skipped", result.messages[-1]
    )
    total, *parts = map(int, found.groups())
    assert parts == [1, 2, 1]
    assert sum(parts) == total == len(frames)


def test_least_squares_recovers_the_energies():
    frames = [
        water(-500.0 - 2 * 0.5 + 500 - 459.2),
        Atoms("O2", [[0, 0, 0], [0, 0, 1.2]]),
    ]
    frames[0].info["energy"] = -432.0 - 2 * 13.6
    frames[1].info["energy"] = -864.0
    result = fit(frames, [1, 8])
    assert result.table["a"] == pytest.approx({1: -13.6, 8: -432.0})
    assert result.origin == {"a": "least squares"}
    assert result.deficient == []


def test_rank_deficient_fit_has_minimum_norm_and_says_so():
    result = fit([water(-6.0), water(-6.0, 0.1)], [1, 8])
    # smallest norm of (h, o) with 2 h + o = -6
    assert result.table["a"] == pytest.approx({1: -2.4, 8: -1.2})
    assert result.deficient == ["a"]
    assert "fix only 1 of 2 energies (H, O)" in result.messages[0]


def test_elements_that_no_frame_has_get_zero_and_are_reported(h2):
    result = fit([h2(energy=-30.0)], [1, 8])
    assert result.table["a"] == pytest.approx({1: -15.0, 8: 0.0})
    assert result.deficient == ["a"]


def test_isolated_atoms_for_some_elements():
    frames = [atom("H", -13.6), water(-460.0), water(-460.0, 0.1)]
    result = fit(frames, [1, 8])
    assert result.table["a"] == pytest.approx({1: -13.6, 8: -460.0 + 27.2})
    assert result.origin == {"a": "isolated atoms and least squares"}
    assert result.deficient == []


def test_isolated_atoms_of_another_file(h2):
    isolated = [atom("O", -16.0), atom("H", -0.5)]
    specs = [LabelSpec("a", energy_unit="Hartree")]
    result = fit([h2(energy=-1.1)], [1, 8], specs=specs, isolated=isolated)
    assert result.table["a"] == pytest.approx({1: -13.605693, 8: -435.382176}, rel=1e-7)
    assert result.origin == {"a": "isolated atoms"}
    assert result.taken == []
    with pytest.raises(DataError, match="isolated atoms: frame 0 is meant as"):
        fit([h2(energy=-1.1)], [1], isolated=[h2(energy=-1.0)])


def test_every_head_has_its_own(h2):  # C45
    frames = [h2(a_energy=-20.0), h2(0.8, a_energy=-20.0), h2(0.9, c_energy=-60.0)]
    specs = [LabelSpec("a"), LabelSpec("c")]
    result = fit(frames, [1], heads=["a", "b", "c"], specs=specs)
    found = {head: row[1] for head, row in result.table.items()}
    assert found == pytest.approx({"a": -10.0, "b": 0.0, "c": -30.0})
    assert result.origin == {"a": "least squares", "b": "none", "c": "least squares"}
    given = {"a": {"H": -1}, "b": {"H": -2}, "c": {"H": -3}}
    result = fit(frames, [1], heads=["c", "a"], specs=specs, given=given)
    assert result.table == {"c": {1: -3.0}, "a": {1: -1.0}}


def test_a_head_that_is_not_given_is_fitted(h2):
    frames = [h2(a_energy=-20.0, c_energy=-60.0)]
    specs = [LabelSpec("a"), LabelSpec("c")]
    result = fit(frames, [1], heads=["a", "c"], specs=specs, given={"a": {"H": -9}})
    assert result.table == {"a": {1: -9.0}, "c": {1: -30.0}}


def test_large_energies_keep_their_digits():
    rng = np.random.default_rng(0)
    frames = []
    for _ in range(50):
        numbers = rng.choice([1, 6, 8], size=rng.integers(2, 9))
        energy = sum({1: -13.5, 6: -1026.853, 8: -2037.796}[z] for z in numbers)
        frames.append(
            Atoms(numbers, rng.normal(size=(len(numbers), 3)), info={"energy": energy})
        )
    result = fit(frames, [1, 6, 8])
    assert result.table["a"] == pytest.approx(
        {1: -13.5, 6: -1026.853, 8: -2037.796}, abs=1e-9
    )


def test_no_energies_at_all(h2):
    result = fit([h2(force=0.5)], [1])
    assert result.table == {"a": {1: 0.0}}
    assert "no energies to fit" in result.messages[0]


def test_table_of_other_frames(h2):
    table = extract_labels([h2(energy=1.0)], [LabelSpec("a")])
    with pytest.raises(DataError, match="2 frames, but labels of 1"):
        fit_references([h2(), h2()], table, ["a"], [1])
