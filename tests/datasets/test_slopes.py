import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT

from gnnforce.datasets.slopes import CLOSE, slope_remark

KCAL = 23.060548


def h2_pair(energy_factor=1.0, force_factor=1.0):
    samples = []
    for row, (length, energy) in enumerate([(0.74, -1.000), (0.80, -0.970)]):
        forces = force_factor * np.array([[0, 0, 0.5], [0, 0, -0.5]])
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, length]])
        samples.append((row, atoms, energy_factor * energy, forces))
    return samples


def test_right_units_pass():  # C28: the slope there is 0.5 eV/Ang
    assert slope_remark(h2_pair()) is None


def test_energies_in_kcal_and_forces_in_ev_are_noticed():  # C28
    remark = slope_remark(h2_pair(energy_factor=KCAL))
    assert "the energy changes 23.1 times" in remark
    assert "close frames such as 0 and 1" in remark


@pytest.mark.parametrize("factor", [-1.0, 1 / 6, 6.0])
def test_signs_and_factors_over_five_are_noticed(factor):
    assert slope_remark(h2_pair(energy_factor=factor)) is not None


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_smaller_factors_pass(factor):
    assert slope_remark(h2_pair(force_factor=factor)) is None


def test_frames_that_cannot_be_compared_are_not():
    far = h2_pair(energy_factor=KCAL)
    far[1][1].positions[1, 2] = 0.74 + 1.1 * CLOSE
    assert slope_remark(far) is None
    ion = h2_pair(energy_factor=KCAL)
    ion[1][1].info["charge"] = 1
    assert slope_remark(ion) is None
    assert slope_remark(h2_pair(energy_factor=KCAL, force_factor=0.0)) is None
    assert slope_remark([]) is None


def test_real_forces_pass_and_wrong_signs_do_not():
    rng = np.random.default_rng(0)
    samples = []
    for row in range(30):
        atoms = Atoms("Cu3", [[0, 0, 0], [2.4, 0, 0], [0, 2.6, 0]])
        atoms.positions += 0.03 * rng.normal(size=(3, 3))
        atoms.calc = EMT()
        samples.append((row, atoms, atoms.get_potential_energy(), atoms.get_forces()))
    assert slope_remark(samples) is None
    assert slope_remark([(r, a, e, -f) for r, a, e, f in samples]) is not None
    assert slope_remark([(r, a, e, f / 23.06) for r, a, e, f in samples]) is not None
