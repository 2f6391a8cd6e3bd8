"""Compare derivative strategies: time, memory, agreement; predictions or training steps.

One workload is measured in three passes. Every candidate (number of outputs, strategy) is
first tried in a process of its own, which gives its peak memory and keeps what is too slow
or too large away from the rest; then its numbers are compared with those of the loop; then
all candidates are timed in turns.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from gnnforce.testing.benchmark_calls import predict, training_step
from gnnforce.testing.benchmark_plan import Plan
from gnnforce.testing.benchmark_probe import probe
from gnnforce.testing.benchmark_references import Reference
from gnnforce.testing.benchmark_rows import Row, fill_ratios
from gnnforce.testing.benchmark_setup import Setup, build
from gnnforce.testing.timing import in_turns

Advance = Callable[[str], None]
Key = tuple[int, str]


@dataclass
class Comparison:
    """What came out for one workload.

    Attributes:
        workload: Its name.
        dtype: Precision of the model.
        sizes: ``n_atoms``, ``n_edges``, ``n_graphs``, ``n_parameters`` of the backbone.
        rows: One a candidate.
    """

    workload: str
    dtype: str
    sizes: dict[str, int]
    rows: list[Row] = field(default_factory=list)

    @property
    def wrong(self) -> list[Row]:
        """Candidates whose numbers are not those of the loop."""
        return [row for row in self.rows if row.agrees is False]

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def compare(setup: Setup, plan: Plan, advance: Advance | None = None) -> Comparison:
    """Measure one workload.

    Args:
        setup: Backbone and structures.
        plan: What to compare.
        advance: Told what is being done, once a step.

    Returns:
        The numbers of every candidate, those left out with the reason.

    Raises:
        UserError: For a setup that cannot be built.

    Example:
        >>> setup = Setup("molecule", sizes={"n_features": 8, "n_layers": 1})
        >>> plan = Plan(members=(4,), strategies=("loop",), repeats=1, memory=False)
        >>> [(row.n_outputs, row.strategy) for row in compare(setup, plan).rows]
        [(1, 'loop'), (4, 'loop')]
    """
    advance = advance or (lambda _: None)
    model, graph = build(setup, 1)
    sizes = {
        "n_atoms": graph.n_atoms,
        "n_edges": graph.n_edges,
        "n_graphs": graph.n_graphs,
        "n_parameters": sum(one.numel() for one in model.backbone.parameters()),
    }
    rows = [Row(setup.name, call.n_outputs, call.strategy) for call in plan.calls()]
    probe(rows, setup, plan, advance)
    runs = _checked(rows, setup, plan, advance)
    first = {key: _row(rows, key).first_seconds or 0.0 for key in runs}
    times = in_turns(
        runs,
        first,
        plan.repeats,
        budget=2 * plan.max_seconds,
        device=setup.device,
        before_turn=lambda: advance(f"{setup.name}: timing"),
    )
    for key, seconds in times.items():
        _row(rows, key).set_times(seconds)
    fill_ratios(rows)
    return Comparison(setup.name, str(model.dtype).removeprefix("torch."), sizes, rows)


def _row(rows: list[Row], key: Key) -> Row:
    return next(row for row in rows if (row.n_outputs, row.strategy) == key)


def _checked(
    rows: list[Row], setup: Setup, plan: Plan, advance: Advance
) -> dict[Key, Callable[[], object]]:
    """Compare every candidate with the loop; return the calls to time."""
    step = training_step if plan.training else predict
    runs: dict[Key, Callable[[], object]] = {}
    for n in plan.members:
        own = [row for row in rows if row.n_outputs == n and row.status == "measured"]
        if not own:
            continue
        model, graph = build(setup, n)
        reference = Reference(model, graph, rows, plan.training, plan.max_seconds)
        for row in own:
            advance(f"{setup.name}: checking {row.strategy}, {n} outputs")
            result = step(model, graph, row.strategy)
            row.used = result.strategy
            row.choice = asdict(result.choice) if result.choice else {}
            reference.judge(row, result)
            runs[n, row.strategy] = partial(step, model, graph, row.strategy)
        if plan.training:
            model.zero_grad(set_to_none=True)
    if torch.device(setup.device).type == "cuda":
        torch.cuda.synchronize(setup.device)
    return runs
