"""Copies, other processes, side effects and memory of the calculator."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from ase.mep import NEB
from ase.optimize import BFGS

from gnnforce.backbones.painn import PaiNN
from gnnforce.calculators.ase import Calculator
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems


def make_model():
    torch.manual_seed(5)
    heads = [Head("a", members=2), Head("b")]
    return ForceField(PaiNN([1, 8], n_features=8, n_layers=2), heads).double()


@pytest.fixture
def calc():
    return Calculator(make_model())


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "atoms"])
def test_copies_are_equal_and_independent(calc, how, used):  # C55
    water = systems.water()
    if used:
        calc.get_forces(water)
    if how == "deepcopy":
        twin = copy.deepcopy(calc)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(calc))
    else:
        water.calc = calc
        twin = copy.deepcopy(water).calc
    plain = systems.water()
    assert twin is not calc
    assert twin.get_potential_energy(plain) == calc.get_potential_energy(plain)
    np.testing.assert_array_equal(twin.get_forces(plain), calc.get_forces(plain))
    energy = calc.get_potential_energy(plain)
    twin.set(head="b", dtype="float32")
    assert (calc.head, calc.model.dtype) == ("a", torch.float64)
    assert (twin.head, twin.model.dtype) == ("b", torch.float32)
    assert calc.results["energy"] == energy
    with torch.no_grad():
        for parameter in twin.model.parameters():
            parameter.zero_()
    calc.reset()
    assert calc.get_potential_energy(plain) == energy


def test_pickle_is_about_the_weights(calc):  # C55
    weights = sum(p.numel() * p.element_size() for p in calc.model.parameters())
    empty = len(pickle.dumps(calc))
    assert empty < 2 * weights + 60_000
    calc.get_forces(systems.water())
    assert len(pickle.dumps(calc)) < empty + 20_000


def _energy(job):
    calc, atoms = job
    return calc.get_potential_energy(atoms)


def _waters():
    waters = [systems.water() for _ in range(4)]
    for number, water in enumerate(waters):
        water.positions[1, 1] += 0.05 * number
    return waters


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_pools(calc, method):  # C55
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # with a pool of threads that a fork does not inherit
    try:
        torch.ones(2000, 2000).sigmoid().sum()
        expected = [calc.get_potential_energy(water) for water in _waters()]
        with multiprocessing.get_context(method).Pool(2) as pool:
            jobs = pool.map_async(_energy, [(calc, water) for water in _waters()])
            energies = jobs.get(timeout=60)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(energies, expected, atol=1e-10)
    assert len(set(expected)) == 4


@pytest.mark.parametrize("shared", [True, False])
def test_nudged_elastic_band(calc, shared):  # C55
    first, last = systems.water(), systems.water()
    last.positions[1] = [0.9, 0.3, 0.2]
    images = [first, first.copy(), last]
    for image in images:
        image.calc = calc if shared else copy.deepcopy(calc)
    band = NEB(images, method="improvedtangent", allow_shared_calculator=shared)
    band.interpolate()
    BFGS(band, logfile=None).run(fmax=1e-6, steps=3)
    middle = images[1]
    assert middle.get_potential_energy() == Calculator(calc.model).get_potential_energy(
        middle.copy()
    )


SIDE_EFFECTS = """
import json, logging, os, random, sys, warnings
import numpy as np, torch
import ase.build, ase.md.verlet, torch_geometric  # what others do is not ours

def state():
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch rng": torch.random.get_rng_state().tolist(),
        "numpy rng": str(np.random.get_state()),
        "python rng": str(random.getstate()),
        "environment": dict(os.environ),
        "filters": [str(f) for f in warnings.filters],
        "handlers": [str(h) for h in logging.getLogger().handlers],
    }

before = state()
import gnnforce as gf
from gnnforce.simulation.md import run_md
from gnnforce.testing import systems
imported = state()
for dtype in ("float32", "float64"):
    calc = gf.Calculator(sys.argv[1], dtype=dtype, threads=1)
    calc.get_forces(systems.water())
    try:
        calc.get_forces(systems.copper())
    except gf.errors.UnknownElementError:
        pass
    else:
        raise SystemExit("copper was not refused")
run_md(systems.water(), sys.argv[1], folder=sys.argv[2], steps=3, seed=1)
after = state()
changed = [
    key for key in before if not before[key] == imported[key] == after[key]
]
print(json.dumps(changed))
"""


@pytest.mark.slow
def test_no_side_effects(calc, tmp_path):  # C23
    calc.model.save(tmp_path / "model.pt")
    done = subprocess.run(
        [sys.executable, "-c", SIDE_EFFECTS, tmp_path / "model.pt", tmp_path / "md"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


MEMORY = """
import os, resource, sys
import numpy as np
import torch
from ase.build import bulk
from gnnforce.backbones.painn import PaiNN
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.simulation.md import run_md

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

seen = {}
def watch(step, last, record):
    if step in (200, 2000):
        seen[step] = resident()

torch.set_num_threads(1)
torch.manual_seed(0)
backbone = PaiNN([29], n_features=8, n_layers=1, cutoff=3.0)
model = ForceField(backbone, [Head("e", members=2)])
model.set_scales({"e": 0.01})
atoms = bulk("Cu", cubic=True) * 2
result = run_md(
    atoms, model, folder=sys.argv[1], steps=2000, temperature=100.0, progress=watch,
    log_every=10,
)
assert result.finished, result.message
print(seen[2000] - seen[200])
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_memory_is_flat_along_a_run(tmp_path):  # C57
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path / "md"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 5.0  # MB
