import numpy as np
import pytest
from ase import units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.md.langevin import Langevin
from ase.md.langevinbaoab import LangevinBAOAB
from ase.md.verlet import VelocityVerlet

from gnnforce.simulation.integrators import (
    integrator_state,
    make_integrator,
    restore_integrator,
)
from gnnforce.simulation.settings import MDSettings


def copper():
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.05, seed=1)
    atoms.set_momenta(np.random.default_rng(0).normal(size=(4, 3)))
    atoms.calc = EMT()
    return atoms


@pytest.mark.parametrize(
    ("ensemble", "kind"),
    [("nve", VelocityVerlet), ("langevin", Langevin), ("npt", LangevinBAOAB)],
)
def test_kinds_and_units(ensemble, kind):
    settings = MDSettings(ensemble=ensemble, timestep_fs=2.0, friction_per_ps=5.0)
    dynamics = make_integrator(copper(), settings, np.random.default_rng(0))
    assert type(dynamics) is kind
    assert dynamics.dt == pytest.approx(2.0 * units.fs)
    if ensemble == "langevin":
        assert dynamics.fr == pytest.approx(0.005 / units.fs)
        assert not dynamics.fix_com
    if ensemble == "npt":
        assert dynamics.gamma == pytest.approx(0.005 / units.fs)
        assert dynamics.hydrostatic


def test_state_of_the_barostat():
    settings = MDSettings(ensemble="npt", timestep_fs=2.0, pressure_gpa=3.0)
    atoms = copper()
    dynamics = make_integrator(atoms, settings, np.random.default_rng(0))
    assert dynamics.externalstress == pytest.approx(-3.0 * units.GPa)
    for _ in range(3):
        dynamics.step()
    state = integrator_state(dynamics)
    assert state["p_eps"] != 0
    twin = make_integrator(atoms, settings, np.random.default_rng(0))
    assert integrator_state(twin) != state
    restore_integrator(twin, state)
    assert integrator_state(twin) == state


def test_others_have_no_state():
    for ensemble in ("nve", "langevin"):
        settings = MDSettings(ensemble=ensemble)
        dynamics = make_integrator(copper(), settings, np.random.default_rng(0))
        assert integrator_state(dynamics) == {}
