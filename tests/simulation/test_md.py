import numpy as np
import pytest
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.io import read

from gnnforce.backbones.painn import PaiNN
from gnnforce.calculators.ase import Calculator
from gnnforce.errors import (
    GeometryError,
    StatisticsError,
    StressError,
    UnknownElementError,
    UserError,
)
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.simulation.md import run_md
from gnnforce.testing import systems


class Spring(AseCalculator):
    """Pulls every atom to the origin; from a given evaluation on it breaks."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012

    def __init__(self, breaks_at=10**9, value=np.nan):
        super().__init__()
        self.left, self.value = breaks_at, value

    def calculate(self, atoms=None, *_):
        self.atoms = atoms.copy()
        self.left -= 1
        x = atoms.positions
        energy = 0.5 * float((x**2).sum()) if self.left >= 0 else self.value
        self.results = {"energy": energy, "forces": -x.copy()}


def test_seed_decides(model, tmp_path):
    ends = [
        run_md(systems.water(), model, folder=tmp_path / str(n), steps=5, seed=seed)
        for n, seed in enumerate((1, 1, 2))
    ]
    positions = [end.atoms.positions for end in ends]
    np.testing.assert_array_equal(positions[0], positions[1])
    assert abs(positions[0] - positions[2]).max() > 1e-6


def test_log_and_trajectory_say_the_same(model, tmp_path):
    seen = []
    result = run_md(
        systems.water(),
        model,
        folder=tmp_path,
        steps=6,
        log_every=2,
        progress=lambda step, last, record: seen.append((step, last, record["step"])),
    )
    assert seen == [(n, 6, n) for n in range(1, 7)]
    log = result.log()
    assert list(log) == [
        "step",
        "time_fs",
        "epot",
        "ekin",
        "etot",
        "temperature",
        "energy_std",
        "forces_std_max",
        "forces_std_mean",
    ]
    assert log["step"].tolist() == [0, 2, 4, 6]
    assert log["time_fs"].tolist() == [0, 1, 2, 3]
    frames = read(tmp_path / "trajectory.extxyz", index=":")
    calc = Calculator(model)
    for row, frame in enumerate(frames):
        assert frame.get_potential_energy() == pytest.approx(log["epot"][row], abs=1e-7)
        assert frame.get_kinetic_energy() == pytest.approx(log["ekin"][row], abs=1e-5)
        spread = frame.arrays["forces_std"]
        assert spread.shape == (3, 3)
        assert spread.max() == pytest.approx(log["forces_std_max"][row], abs=1e-7)
        np.testing.assert_allclose(
            frame.get_forces(), calc.get_forces(Atoms(frame)), atol=1e-5
        )
        assert frame.info["energy_std"] == pytest.approx(log["energy_std"][row])
    final = read(tmp_path / "final.xyz")
    np.testing.assert_allclose(final.positions, result.atoms.positions, atol=1e-7)


def test_caller_keeps_his_atoms_and_old_labels_do_not_travel(model, tmp_path):
    atoms = systems.water()
    atoms.info.update(REF_energy=-5.0, charge=0)
    atoms.arrays["REF_forces"] = np.ones((3, 3))
    before = atoms.copy()
    run_md(atoms, model, folder=tmp_path, steps=2, log_every=1)
    assert atoms.calc is None
    assert not atoms.has("momenta")
    assert atoms == before
    frame = read(tmp_path / "trajectory.extxyz", index=1)
    assert "REF_energy" not in frame.info
    assert "REF_forces" not in frame.arrays
    assert frame.info["charge"] == 0


def test_nve_conserves_energy(model, tmp_path):
    result = run_md(
        systems.water(),
        model,
        folder=tmp_path,
        ensemble="nve",
        temperature=300,
        timestep_fs=0.1,
        steps=100,
        log_every=1,
    )
    log = result.log()
    np.testing.assert_allclose(log["etot"], log["epot"] + log["ekin"])
    assert np.ptp(log["epot"]) > 1e-3
    assert np.ptp(log["etot"]) < 0.01 * np.ptp(log["epot"])


def test_langevin_reaches_the_temperature(tmp_path):
    atoms = Atoms("Ar100", np.random.default_rng(0).normal(size=(100, 3)))
    result = run_md(
        atoms,
        Spring(),
        folder=tmp_path,
        temperature=500,
        timestep_fs=2.0,
        steps=400,
        log_every=10,
        friction_per_ps=50.0,
    )
    mean = result.log()["temperature"][20:].mean()
    assert mean == pytest.approx(500, rel=0.1)


@pytest.mark.slow
def test_npt_follows_the_pressure(tmp_path):
    copper = bulk("Cu", cubic=True)
    volumes = {}
    for pressure in (-5.0, 20.0):
        result = run_md(
            copper,
            EMT(),
            folder=tmp_path / str(pressure),
            ensemble="npt",
            temperature=50,
            timestep_fs=2.0,
            steps=1500,
            log_every=10,
            pressure_gpa=pressure,
        )
        log = result.log()
        volumes[pressure] = log["volume"][-50:].mean()
        assert log["volume"][0] == pytest.approx(copper.get_volume())
    assert volumes[20.0] < 0.96 * copper.get_volume() < volumes[-5.0]


def test_stops_when_uncertain(model, tmp_path):
    free = run_md(systems.water(), model, folder=tmp_path / "a", steps=30, log_every=1)
    spread = free.log()["forces_std_max"]
    record = next(n for n in range(1, 31) if spread[n] > spread[:n].max())
    limit = (spread[:record].max() + spread[record]) / 2
    result = run_md(
        systems.water(),
        model,
        folder=tmp_path / "b",
        steps=30,
        log_every=7,
        max_force_std=float(limit),
    )
    assert result.reason == "uncertain"
    assert not result.finished
    assert result.step == record
    assert f"step {record} " in result.message
    assert f"{limit:g}" in result.message
    assert "uncertain.xyz" in result.message
    frame = read(tmp_path / "b" / "uncertain.xyz")
    assert frame.info["step"] == record
    assert frame.arrays["forces_std"].max() == pytest.approx(spread[record], abs=1e-7)
    assert result.log()["step"][-1] == record
    onward = run_md(
        systems.water(),
        model,
        folder=tmp_path / "b",
        steps=30 - record,
        log_every=7,
        restart=True,
    )
    assert onward.finished
    np.testing.assert_allclose(onward.atoms.positions, free.atoms.positions, atol=1e-12)


def test_limit_holds_for_the_first_frame(model, tmp_path):
    result = run_md(systems.water(), model, folder=tmp_path, steps=5, max_force_std=1e-9)
    assert (result.reason, result.step) == ("uncertain", 0)
    assert read(tmp_path / "uncertain.xyz").info["step"] == 0


@pytest.mark.parametrize("head", ["one", None])
def test_limit_needs_a_committee(model, tmp_path, head):
    calc = Spring() if head is None else Calculator(model, head=head)
    with pytest.raises(StatisticsError, match="members"):
        run_md(systems.water(), calc, folder=tmp_path, steps=5, max_force_std=0.1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite_stops_with_the_last_good_frame(tmp_path, value):
    result = run_md(
        systems.water(),
        Spring(breaks_at=5, value=value),
        folder=tmp_path,
        steps=20,
        log_every=1,
        timestep_fs=0.5,
    )
    assert result.reason == "unstable"
    assert "energy is not finite" in result.message
    assert f"step {result.step + 1}" in result.message
    good = read(tmp_path / "last_good.xyz")
    assert good.info["step"] == result.step
    assert np.isfinite(good.get_potential_energy())
    log = result.log()
    assert log["step"].tolist() == list(range(result.step + 1))
    assert np.isfinite(log["epot"]).all()


def test_collision_stops_the_run(model, tmp_path):
    atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.02]])
    # 0.02 A in one step of 1 fs, so that the two meet
    speed = 0.02 / units.fs
    atoms.set_velocities([[0, 0, 0], [0, 0, -speed]])
    model = ForceField(PaiNN([1], n_features=4, n_layers=1), [Head("e")]).double()
    model.set_scales({"e": 1e-12})
    result = run_md(
        atoms, model, folder=tmp_path, ensemble="nve", timestep_fs=1.0, steps=3
    )
    assert (result.reason, result.step) == ("unstable", 0)
    assert "atoms 0 and 1" in result.message


def test_what_cannot_start_raises(model, tmp_path):
    with pytest.raises(UnknownElementError, match="He"):
        run_md(Atoms("He"), model, folder=tmp_path, steps=1)
    with pytest.raises(GeometryError, match="not finite"):
        run_md(systems.water(), Spring(breaks_at=0), folder=tmp_path, steps=1)
    with pytest.raises(StressError, match="three directions"):
        run_md(systems.water(), model, folder=tmp_path, steps=1, ensemble="npt")
    with pytest.raises(GeometryError, match="no atoms"):
        run_md(Atoms(), model, folder=tmp_path, steps=1)
    for wrong in ({"timestep_fs": 0}, {"steps": 0}, {"ensemble": "nvt"}):
        with pytest.raises(UserError, match=r"timestep|steps|ensemble"):
            run_md(systems.water(), model, folder=tmp_path, **wrong)
    assert not (tmp_path / "md.csv").exists()


def test_constraints_hold_and_do_not_touch_labels(model, tmp_path):
    atoms = systems.water()
    atoms.set_constraint(FixAtoms([0]))
    result = run_md(atoms, model, folder=tmp_path, steps=8, log_every=4)
    np.testing.assert_array_equal(result.atoms.positions[0], atoms.positions[0])
    again = run_md(atoms, model, folder=tmp_path, steps=4, log_every=4, restart=True)
    np.testing.assert_array_equal(again.atoms.positions[0], atoms.positions[0])
    frame = read(tmp_path / "trajectory.extxyz", index=-1)
    raw = frame.get_forces(apply_constraint=False)
    assert np.linalg.norm(raw[0]) > 1e-6


def test_given_velocities_are_kept(model, tmp_path):
    atoms = systems.water()
    atoms.set_momenta(np.arange(9.0).reshape(3, 3) / 10)
    run_md(atoms, model, folder=tmp_path, steps=1, log_every=1)
    first = read(tmp_path / "trajectory.extxyz", index=0)
    np.testing.assert_allclose(first.get_momenta(), atoms.get_momenta(), atol=1e-7)


def test_calculator_steps_cost_one_pass(model, tmp_path):
    calls = []
    hook = model.backbone.register_forward_hook(lambda *_: calls.append(1))
    run_md(systems.water(), model, folder=tmp_path, steps=7, log_every=1)
    hook.remove()
    assert len(calls) == 8
