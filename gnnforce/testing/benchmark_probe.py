"""First calls of all candidates: which can be measured, and what memory they take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from gnnforce.errors import UserError
from gnnforce.testing.benchmark_calls import Call, call_of
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.benchmark_rows import Row
from gnnforce.testing.benchmark_setup import Setup
from gnnforce.testing.peak_memory import Job, Measured, MemoryProbe
from gnnforce.testing.timing import seconds_of

CUDA_METHOD = "torch.cuda.max_memory_allocated"


def probe(
    rows: list[Row], setup: Setup, plan: Plan, advance: Callable[[str], None]
) -> None:
    """Make the first call of every candidate and fill in status, memory and time.

    On the CPU every call has a process of its own, which is ended when it takes too
    long. On a CUDA device, and when memory is not measured, the call is made here; there
    a candidate is left out when its time, extrapolated from fewer outputs, is too long.
    After a candidate that was left out, its strategy is not tried with more outputs.

    Args:
        rows: The candidates, few outputs first.
        setup: Backbone and structures.
        plan: The plan.
        advance: Told what is being done.
    """
    with _measurer(setup, plan) as measure:
        for row in rows:
            advance(f"{setup.name}: trying {row.strategy}, {row.n_outputs} outputs")
            before = [
                one
                for one in rows
                if one.strategy == row.strategy and one.n_outputs < row.n_outputs
            ]
            found = _left_out(row, before, plan, alone=_alone(setup, plan))
            found = found or measure(Call(row.n_outputs, row.strategy, plan.training))
            row.status, row.reason = found.status, found.reason
            row.first_seconds = found.seconds
            row.peak_mib, row.peak_method = found.peak_mib, found.method


def expected_seconds(n_outputs: int, known: list[tuple[int, float]]) -> float:
    """Extrapolate times to more outputs: a line through the last two, or the origin.

    Example:
        >>> expected_seconds(64, [(16, 1.0)])
        4.0
        >>> expected_seconds(64, [(4, 1.0), (16, 1.0)])
        1.0
    """
    (n_last, t_last) = known[-1]
    (n_before, t_before) = known[-2] if len(known) > 1 else (0, 0.0)
    slope = max(0.0, (t_last - t_before) / (n_last - n_before))
    return t_last + slope * (n_outputs - n_last)


def _alone(setup: Setup, plan: Plan) -> bool:
    """Whether every call has its own process, where its time and memory are limited."""
    return plan.memory and torch.device(setup.device).type == "cpu"


def _left_out(row: Row, before: list[Row], plan: Plan, *, alone: bool) -> Measured | None:
    stopped = [one for one in before if one.status in ("too slow", "too large")]
    if stopped:
        first = stopped[0]
        reason = first.reason.partition("; not tried")[0]
        return Measured(
            first.status,  # type: ignore[arg-type]  # one of these two
            f"{reason} with {first.n_outputs} outputs; not tried with {row.n_outputs}",
        )
    known = [(one.n_outputs, one.first_seconds) for one in before if one.first_seconds]
    if known and not alone:
        seconds = expected_seconds(row.n_outputs, known)
        if seconds > plan.max_seconds:
            return Measured(
                "too slow",
                f"would take about {seconds:.3g} s, limit {plan.max_seconds:g} s",
            )
    return None


@contextmanager
def _measurer(setup: Setup, plan: Plan) -> Iterator[Callable[[Call], Measured]]:
    if not _alone(setup, plan):
        yield lambda call: _measure_here(setup, call, memory=plan.memory)
        return
    max_mib = plan.max_mib or float("inf")
    threads = torch.get_num_threads()
    with MemoryProbe() as process:
        yield lambda call: process.measure(
            Job(setup, call, threads, plan.max_seconds, max_mib)
        )


def _measure_here(setup: Setup, call: Call, *, memory: bool) -> Measured:
    device = torch.device(setup.device)
    try:
        run = call_of(setup, call)
        call_of(setup, call, small=True)()
        if memory:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        seconds = seconds_of(run, setup.device)
    except UserError as error:
        return Measured("refused", str(error))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return Measured("too large", "takes more memory than the device has")
    if not memory:
        return Measured("measured", seconds=seconds)
    grown = torch.cuda.max_memory_allocated(device) - before
    return Measured("measured", "", grown / 2**20, CUDA_METHOD, seconds)
