"""Peak memory of one call, each in a process of its own.

Resident memory of a process that has done other work says little: freed memory is kept
and used again. So a fresh process imports the package and forks a child for every job. The
child builds model and batch, runs the same call on two atoms (which loads what is loaded
on first use), sets the kernel's peak back and runs the call once. What is reported is the
growth of resident memory from before the call to its peak; inputs and weights are not
included. A child may not take more memory or time than the job allows.

``python -m gnnforce.testing.peak_memory`` is that process: one JSON line a job in, one
JSON line a job out.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import torch

from gnnforce.errors import UserError
from gnnforce.testing.benchmark_calls import Call, call_of
from gnnforce.testing.benchmark_setup import Setup

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_RESET_PEAK = "5"  # see proc(5)
Status = Literal["measured", "refused", "too slow", "too large", "failed"]


@dataclass(frozen=True)
class Job:
    """One call to measure.

    Attributes:
        setup: Backbone and structures, on the CPU.
        call: What is called.
        threads: Threads of torch.
        max_seconds: The call is ended after this time.
        max_mib: The call may take this much memory.
    """

    setup: Setup
    call: Call
    threads: int
    max_seconds: float
    max_mib: float


@dataclass(frozen=True)
class Measured:
    """What came of a job.

    Attributes:
        status: ``measured``; or ``refused``, by the strategy itself; or what went wrong.
        reason: Why there is no number.
        peak_mib: Growth of resident memory during the call, MiB.
        method: How the peak was read: the kernel's ``VmHWM`` set back before the call,
            or ``ru_maxrss``, the peak since the child began.
        seconds: Of the one call.
    """

    status: Status
    reason: str = ""
    peak_mib: float | None = None
    method: str = ""
    seconds: float | None = None


class MemoryProbe:
    """A process that measures one job after the other; a context manager.

    Example:
        >>> setup = Setup("molecule", sizes={"n_features": 8})
        >>> with MemoryProbe() as probe:
        ...     result = probe.measure(Job(setup, Call(1, "loop"), 1, 60.0, 4096.0))
        >>> result.status, 0 < result.peak_mib < 100
        ('measured', True)
    """

    def __enter__(self) -> Self:
        """Start the process.

        Raises:
            UserError: Where processes cannot be forked.
        """
        if not hasattr(os, "fork"):
            raise UserError("peak memory is measured on Unix only; use --no-memory")
        words = [sys.executable, "-W", "ignore", "-m", "gnnforce.testing.peak_memory"]
        places = os.pathsep.join(sys.path)  # it must find the same package
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": places},
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process; it ends by itself when there are no more jobs."""
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def measure(self, job: Job) -> Measured:
        """Measure one job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return Measured("failed", "the measuring process has died")
        line = self._process.stdout.readline()
        if not line:
            return Measured("failed", "the measuring process has died")
        return Measured(**json.loads(line))


def measure(job: Job) -> Measured:
    """Run one job in this process, which is ended when the job takes too long."""
    torch.set_num_threads(job.threads)
    try:
        run = call_of(job.setup, job.call)
        call_of(job.setup, job.call, small=True)()
        before, method = _start_window()
        _limit_memory(job.max_mib)
        signal.setitimer(signal.ITIMER_REAL, job.max_seconds)
        start = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - start
        signal.setitimer(signal.ITIMER_REAL, 0)
        peak = _peak(method)
        del result
    except UserError as error:
        return Measured("refused", str(error))
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        return Measured("too large", f"takes more memory than {job.max_mib:.0f} MiB")
    mib = max(0.0, (peak - before) / 2**20)
    return Measured("measured", "", mib, method, seconds)


def available_mib() -> float:
    """Return the memory that can still be had, of the machine and of its container.

    Example:
        >>> available_mib() > 10
        True
    """
    free = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        free = [int(found[1]) * 1024] if found else free
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        free.append(int(limit.read_text()) - int(used.read_text()))
    return min(free) / 2**20


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def _limit_memory(mib: float) -> None:
    """Make allocations beyond the limit fail, instead of leaving that to the kernel."""
    if _STATUS.is_file():
        import resource  # noqa: PLC0415  (not everywhere)

        limit = _status("VmData") + int(mib * 2**20)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _start_window() -> tuple[int, str]:
    """Return resident bytes now, and how the peak from here on is read."""
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:  # not Linux, or not allowed
        return _peak("ru_maxrss"), "ru_maxrss"
    return _status("VmRSS"), "VmHWM"


def _peak(method: str) -> int:
    if method == "VmHWM":
        return _status("VmHWM")
    import resource  # noqa: PLC0415  (not everywhere)

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    text = _STATUS.read_text(encoding="ascii", errors="replace")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, f"{_STATUS} has no {name}"
    return int(found[1]) * 1024


def _in_child(job: Job) -> Measured:
    """Fork, measure there, and return what the child found, or why it found nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(asdict(measure(job)), pipe)
            status = 0
        except BaseException as error:  # nothing may leave a forked child
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, raw = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(raw)
    if code == 0:
        return Measured(**json.loads(text))
    if code == -signal.SIGALRM:
        return Measured("too slow", f"takes more than {job.max_seconds:g} s")
    if code == -signal.SIGKILL:
        return Measured("too large", "was killed, probably for lack of memory")
    return Measured("failed", f"the process ended with status {code}")


def main() -> None:
    """Read jobs, write results."""
    for line in sys.stdin:
        plain = json.loads(line)
        plain["setup"], plain["call"] = Setup(**plain["setup"]), Call(**plain["call"])
        print(json.dumps(asdict(_in_child(Job(**plain)))), flush=True)


if __name__ == "__main__":
    main()
