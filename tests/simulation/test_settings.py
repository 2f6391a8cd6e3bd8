import pytest
from ase.build import bulk, fcc111, molecule
from ase.constraints import FixAtoms

from gnnforce.errors import GeometryError, StressError, UserError
from gnnforce.simulation.settings import MDSettings


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"timestep_fs": 0.0}, "timestep"),
        ({"timestep_fs": -1.0}, "timestep"),
        ({"timestep_fs": float("nan")}, "timestep"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"log_every": 0}, "log_every"),
        ({"seed": -1}, "seed"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": 0.0, "ensemble": "npt"}, "temperature"),
        ({"max_force_std": 0.0}, "max_force_std"),
        ({"friction_per_ps": 0.0}, "friction"),
        ({"pressure_gpa": float("nan")}, "pressure"),
        ({"ensemble": "langevn"}, "did you mean 'langevin'"),
    ],
)
def test_one_line_names_the_setting(wrong, word):
    with pytest.raises(UserError) as caught:
        MDSettings(**wrong)
    message = str(caught.value)
    assert word in message.replace("Did", "did")
    assert "\n" not in message


def test_npt_needs_three_directions_and_no_constraints():
    settings = MDSettings(ensemble="npt")
    settings.check_structure(bulk("Cu"))
    for atoms in (molecule("H2O"), fcc111("Cu", (1, 1, 2), vacuum=5.0)):
        with pytest.raises(StressError, match="npt"):
            settings.check_structure(atoms)
        MDSettings().check_structure(atoms)
    fixed = bulk("Cu")
    fixed.set_constraint(FixAtoms([0]))
    with pytest.raises(GeometryError, match="constraints"):
        settings.check_structure(fixed)
