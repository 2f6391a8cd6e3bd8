"""A named check and its outcome."""

import traceback
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Check(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: What was checked.
        passed: Whether it holds.
        message: Why not; empty when it holds.
    """

    name: str
    passed: bool
    message: str


def run_checks(checks: Mapping[str, Callable[[], None]]) -> list[Check]:
    """Run every check to its end, whatever the others do.

    Args:
        checks: Functions by name; each raises when its statement does not hold. An
            ``AssertionError`` is a finding, any other exception is reported with its
            type and place.

    Returns:
        One outcome a check, in the order given.

    Example:
        >>> run_checks({"fine": lambda: None})
        [Check(name='fine', passed=True, message='')]
    """
    return [_run(name, check) for name, check in checks.items()]


def failures(checks: list[Check]) -> str:
    """Return the failed checks, one a line; empty when all hold.

    Example:
        >>> failures([Check("a", True, ""), Check("b", False, "off by 2")])
        'b: off by 2'
    """
    return "\n".join(f"{c.name}: {c.message}" for c in checks if not c.passed)


def _run(name: str, check: Callable[[], None]) -> Check:
    try:
        check()
    except AssertionError as error:
        return Check(name, False, str(error) or "does not hold")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.name}, line {place.lineno}"
        return Check(name, False, f"raised {type(error).__name__}: {error} ({where})")
    return Check(name, True, "")
