"""What a benchmark compares, and how long it may take."""

from collections.abc import Sequence
from dataclasses import dataclass

from gnnforce.errors import UserError
from gnnforce.testing.benchmark_calls import Call
from gnnforce.testing.benchmark_setup import strategy_names
from gnnforce.testing.peak_memory import available_mib

MEMBERS = (1, 4, 16, 64, 256)


@dataclass(frozen=True)
class Plan:
    """What to compare, and how long.

    Attributes:
        members: Numbers of outputs; one is always measured, the ratios are to it.
        strategies: Names; every strategy and ``auto`` when None.
        training: Training steps instead of predictions.
        repeats: Turns of every candidate.
        max_seconds: Candidates with a slower call are left out; one that has been timed
            for twice as long takes no more turns.
        max_mib: Candidates that take more memory are left out; half of what is
            available when None.
        memory: Measure memory, in processes of their own. Without it nothing guards
            against candidates that take too much.

    Raises:
        UserError: For numbers out of range.

    Example:
        >>> Plan(members=(16, 4)).members
        (1, 4, 16)
    """

    members: Sequence[int] = MEMBERS
    strategies: Sequence[str] | None = None
    training: bool = False
    repeats: int = 7
    max_seconds: float = 20.0
    max_mib: float | None = None
    memory: bool = True

    def __post_init__(self) -> None:
        """Check the values, sort the numbers and name all strategies."""
        if any(not isinstance(n, int) or n < 1 for n in self.members):
            raise UserError(f"numbers of members must be above zero: {self.members}")
        if self.repeats < 1:
            raise UserError(f"repeats must be at least 1, not {self.repeats}")
        if not self.max_seconds > 0:
            raise UserError(f"max_seconds must be above zero, not {self.max_seconds}")
        if self.max_mib is not None and not self.max_mib > 0:
            raise UserError(f"max_mib must be above zero, not {self.max_mib}")
        set_ = object.__setattr__
        set_(self, "members", tuple(sorted({1, *self.members})))
        set_(self, "strategies", tuple(strategy_names(self.strategies)))
        if self.max_mib is None:
            set_(self, "max_mib", available_mib() / 2)

    def calls(self) -> list[Call]:
        """Return all candidates, few outputs first."""
        return [
            Call(n, name, self.training)
            for n in self.members
            for name in self.strategies or ()
        ]

    @property
    def n_steps(self) -> int:
        """How often ``advance`` is called for one workload, at most."""
        return len(self.calls()) * (2 + self.repeats)
