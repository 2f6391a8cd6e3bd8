"""``gnnforce vibrations``: numbers, warnings and errors."""

from ase.build import molecule
from ase.io import write

from gnnforce.models.checkpoint import load
from gnnforce.simulation.vibrations import vibrations


def test_json_and_table(run, committee, tmp_path):
    write(tmp_path / "water.xyz", [molecule("CH4"), molecule("H2O")])
    words = ["vibrations", committee, tmp_path / "water.xyz", "--index", 1]
    result = run(*words, "--json")
    assert result.status == 0
    report = result.json()
    model = load(committee, dtype="float64")
    expected = vibrations(molecule("H2O"), model)
    assert len(report["modes"]) == 9
    assert report["head"] == "energy"
    assert report["max_force"] == expected.max_force
    for mode, value in zip(report["modes"], expected.frequencies, strict=True):
        assert abs(mode["frequency"] - max(abs(value.real), abs(value.imag))) < 1e-6
        assert mode["imaginary"] == (abs(value.imag) > abs(value.real))
        assert mode["deviation"] >= 0
    text = run(*words).out
    assert "zero-point energy" in text
    assert any(mode["imaginary"] for mode in report["modes"]) == ("i " in text)


def test_a_structure_with_forces_is_warned_about(run, committee, tmp_path):
    write(tmp_path / "tight.xyz", molecule("H2O"))
    atoms = molecule("H2O")
    atoms.positions *= 0.6
    write(tmp_path / "tight.xyz", atoms)
    result = run("vibrations", committee, tmp_path / "tight.xyz")
    assert result.status == 0
    warned = "--relax" in result.err
    assert warned == (
        vibrations(atoms, load(committee, dtype="float64")).max_force > 0.05
    )


def test_a_crystal_says_which_modes_these_are(run, committee, crystal):
    result = run("vibrations", committee, crystal)
    assert result.status == 0
    assert "Gamma" in result.err


def test_mistakes_are_one_line(run, committee, tmp_path):
    write(tmp_path / "water.xyz", molecule("H2O"))
    write(tmp_path / "gold.xyz", molecule("SiH4"))
    for words in (
        [committee, tmp_path / "none.xyz"],
        [committee, tmp_path / "water.xyz", "--head", "dft"],
        [committee, tmp_path / "water.xyz", "--index", 7],
        [committee, tmp_path / "water.xyz", "--relax", -1],
        [committee, tmp_path / "gold.xyz"],
    ):
        result = run("vibrations", *words)
        assert result.status == 2
        assert result.out == ""
        assert len(result.err.strip().splitlines()) == 1, result.err
