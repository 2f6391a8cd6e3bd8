import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.calculators.threads import check_threads, thread_limit
from gnnforce.errors import UserError
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ForceField(SchNet([1, 8], n_features=8), [Head("e")]).double()


def seen_threads(model, **settings):
    seen = []
    hook = model.backbone.register_forward_hook(
        lambda *_: seen.append(torch.get_num_threads())
    )
    energy = Calculator(model, **settings).get_potential_energy(systems.water())
    hook.remove()
    return seen, energy


def test_threads_hold_inside_the_call_only(model):  # C58
    before = torch.get_num_threads()
    single, first = seen_threads(model, threads=1)
    double, second = seen_threads(model, threads=2)
    unset, _ = seen_threads(model)
    assert (single, double, unset) == ([1], [2], [before])
    assert torch.get_num_threads() == before
    assert first == pytest.approx(second, abs=1e-10)


def test_threads_are_restored_after_an_error():
    before = torch.get_num_threads()
    seen = []

    def fail():
        seen.append(torch.get_num_threads())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), thread_limit(before + 1):
        fail()
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_bad_threads(threads):
    with pytest.raises(UserError, match="threads"):
        check_threads(threads)


def _threads_of_child(queue):
    with thread_limit(4):
        queue.put(torch.get_num_threads())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_process_uses_one_thread():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_threads_of_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == 1
    child.join()


@pytest.mark.slow
def test_one_thread_uses_one_core():  # C58
    code = """
import time, torch
from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing import systems
torch.set_num_threads(1)
calc = Calculator(ForceField(SchNet([1, 8]), [Head("e")]))
atoms = systems.water()
calc.get_forces(atoms)
cpu, wall = time.process_time(), time.perf_counter()
for _ in range(200):
    calc.calculate(atoms)
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 1.2
