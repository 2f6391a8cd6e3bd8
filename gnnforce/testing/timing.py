"""Times of many candidates, taken in turns, so that all of them see the same machine."""

import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import torch

Key = TypeVar("Key", bound=Hashable)
QUICK = 0.25  # seconds; what is quicker than this is run warm, several times a turn
TURN = 0.05  # seconds of timed calls that a turn of a quick candidate aims at
MOST_CALLS = 5


class Spread(NamedTuple):
    """Median and quartiles of times in seconds.

    Example:
        >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
        Spread(median=3.0, lower=2.0, upper=4.0)
    """

    median: float
    lower: float
    upper: float


def spread(seconds: list[float]) -> Spread:
    """Return median and quartiles of at least one time."""
    lower, median, upper = np.percentile(seconds, [25, 50, 75])
    return Spread(float(median), float(lower), float(upper))


def seconds_of(run: Callable[[], object], device: str = "cpu") -> float:
    """Time one call; on a CUDA device, until the device is done.

    Example:
        >>> seconds_of(lambda: None) < 1
        True
    """
    _wait(device)
    start = time.perf_counter()
    result = run()
    _wait(device)
    seconds = time.perf_counter() - start
    del result  # freeing it is not part of the time
    return seconds


def in_turns(
    candidates: Mapping[Key, Callable[[], object]],
    first: Mapping[Key, float],
    rounds: int,
    *,
    budget: float = float("inf"),
    device: str = "cpu",
    before_turn: Callable[[], None] = lambda: None,
) -> dict[Key, list[float]]:
    """Time all candidates round after round.

    Slow drifts of the machine reach every candidate alike. The order is another one in
    every round (from a fixed seed), so that none always follows the same other one, which
    leaves caches and the allocator in a state of its own. A quick candidate is called once
    without a clock in every turn, and then up to five times with it.

    Args:
        candidates: What to call, by name.
        first: Seconds of an earlier call of each.
        rounds: Number of turns of each, at least one.
        budget: A candidate takes no more turns when its timed calls have taken this
            many seconds together.
        device: Where they compute.
        before_turn: Called before every turn.

    Returns:
        Seconds of every timed call, by name.

    Example:
        >>> times = in_turns({"a": lambda: 1, "b": lambda: 2}, {"a": 1.0, "b": 1.0}, 3)
        >>> {name: len(seconds) for name, seconds in times.items()}
        {'a': 3, 'b': 3}
    """
    keys = list(candidates)
    seconds: dict[Key, list[float]] = {key: [] for key in keys}
    generator = random.Random(0)
    for _ in range(rounds):
        for key in generator.sample(keys, len(keys)):
            before_turn()
            if sum(seconds[key]) > budget:
                continue
            run = candidates[key]
            if first[key] < QUICK:
                run()
            calls = min(MOST_CALLS, max(1, int(TURN / max(first[key], 1e-6))))
            seconds[key] += [seconds_of(run, device) for _ in range(calls)]
    return seconds


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
