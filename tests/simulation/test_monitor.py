import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from gnnforce.errors import StatisticsError
from gnnforce.simulation.monitor import UnstableError, check_limit, observe, snapshot


def still(**results):
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 1]], momenta=[[1.0, 0, 0], [0, 0, 0]])
    atoms.calc = SinglePointCalculator(atoms, energy=2.0, forces=np.ones((2, 3)))
    atoms.calc.results.update(results)
    return atoms


def test_observed_numbers():
    spread = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    record = observe(still(energy_std=0.5, forces_std=spread), 4, 0.25)
    kinetic = 0.5 / 1.008
    assert record["time_fs"] == 1.0
    assert record["ekin"] == pytest.approx(kinetic)
    assert record["etot"] == pytest.approx(2.0 + kinetic)
    assert record["temperature"] == pytest.approx(2 * kinetic / 6 / units.kB)
    assert (record["energy_std"], record["forces_std_max"]) == (0.5, 3.0)
    assert record["forces_std_mean"] == 1.0
    assert "volume" not in record
    assert "forces_std_max" not in observe(still(), 0, 1.0)


def test_pressure_of_a_compressed_crystal_is_positive():
    copper = bulk("Cu", a=3.4)
    copper.calc = EMT()
    copper.get_stress()
    record = observe(copper, 0, 1.0)
    assert record["pressure"] == pytest.approx(29.7, abs=0.5)  # GPa
    assert record["volume"] == pytest.approx(copper.get_volume())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["energy", "forces"])
def test_not_finite(bad, name):
    value = bad if name == "energy" else np.full((2, 3), bad)
    with pytest.raises(UnstableError, match=name):
        observe(still(**{name: value}), 0, 1.0)


def test_not_finite_momenta():
    atoms = still()
    atoms.arrays["momenta"][0] = np.nan
    with pytest.raises(UnstableError, match="kinetic"):
        observe(atoms, 0, 1.0)


def test_limit():
    record = {"step": 3, "time_fs": 1.5, "forces_std_max": 0.1}
    assert check_limit(record, None) is None
    assert check_limit(record, 0.1) is None
    assert "step 3 (1.5 fs)" in check_limit(record, 0.09)
    with pytest.raises(StatisticsError, match="two members"):
        check_limit({"step": 3, "time_fs": 1.5}, 0.1)


def test_snapshot_is_frozen():
    atoms = still(forces_std=np.zeros((2, 3)), energy_std=0.0)
    frame = snapshot(atoms, observe(atoms, 0, 1.0))
    atoms.positions += 1
    atoms.calc.results["forces"][:] = 7
    assert frame.positions[1].tolist() == [0, 0, 1]
    assert frame.get_forces().tolist() == np.ones((2, 3)).tolist()
    assert frame.info["step"] == 0
