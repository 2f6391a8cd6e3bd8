"""Peak memory in processes of their own; each test starts one, which takes seconds."""

import pytest
import torch

from gnnforce.errors import UserError
from gnnforce.testing import peak_memory
from gnnforce.testing.benchmark_calls import Call
from gnnforce.testing.benchmark_setup import Setup
from gnnforce.testing.peak_memory import Job, MemoryProbe, available_mib

SIZES = {"n_features": 64, "n_layers": 2}


@pytest.fixture(scope="module")
def probe():
    with MemoryProbe() as process:
        yield process


def job(
    n_outputs=1, strategy="loop", *, seconds=60.0, mib=4000.0, training=False, **more
):
    setup = Setup("molecule", sizes=SIZES | more)
    return Job(setup, Call(n_outputs, strategy, training), 1, seconds, mib)


def test_more_outputs_at_once_take_more(probe):
    one, many = (probe.measure(job(n, "batched")) for n in (1, 64))
    assert one.status == many.status == "measured"
    assert many.peak_mib > 5 * one.peak_mib
    assert many.seconds > 0
    assert one.method in ("VmHWM", "ru_maxrss")


def test_the_measure_is_near_a_known_amount():
    """64 MiB that are written and freed again, inside this process."""
    chunk = 64 * 2**20 // 4

    def allocate():
        torch.zeros(chunk).add_(1)

    allocate()  # what the allocator keeps is kept before, too
    before, method = peak_memory._start_window()
    if method != "VmHWM":
        pytest.skip("the kernel's peak cannot be set back here")
    allocate()
    grown = (peak_memory._peak(method) - before) / 2**20
    assert 50 < grown < 90


def test_a_call_that_takes_too_long_is_ended(probe):
    found = probe.measure(job(256, seconds=0.02, n_features=128))
    assert found.status == "too slow"
    assert "0.02 s" in found.reason
    assert found.peak_mib is None


@pytest.mark.skipif(not peak_memory._STATUS.is_file(), reason="limits need /proc")
def test_a_call_that_takes_too_much_is_refused_the_memory(probe):
    found = probe.measure(job(256, "batched", mib=30.0))
    assert found.status == "too large"
    assert "30 MiB" in found.reason
    assert probe.measure(job()).status == "measured"  # the limit was the child's own


def test_refusals_carry_their_reason(probe):
    found = probe.measure(job(strategy="batchd"))
    assert found.status == "refused"
    assert "Did you mean 'batched'" in found.reason


def test_a_bug_is_a_failure_and_not_a_number(probe):
    found = probe.measure(job(n_outputs="two"))  # no number: some TypeError
    assert found.status in ("failed", "refused")
    assert found.peak_mib is None


def test_a_dead_process_is_noticed():
    with MemoryProbe() as process:
        process._process.kill()
        process._process.wait()
        assert process.measure(job()).status == "failed"
        assert process.measure(job()).status == "failed"


def test_memory_that_is_free():
    assert 10 < available_mib() < 1e8


def test_without_fork_there_is_a_remedy(monkeypatch):
    monkeypatch.delattr("os.fork")
    with pytest.raises(UserError, match="--no-memory"), MemoryProbe():
        pass
