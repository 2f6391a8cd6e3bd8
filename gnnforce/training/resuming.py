"""Whether a run can go on with other options."""

from typing import Any

from gnnforce.errors import ConfigError, DataError

# what a run that goes on may change: how long, how fast, how much it prints
FREE_TO_CHANGE = {"minutes", "epochs", "early_stopping", "workers", "threads"}


def check_same_run(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with options that would make it another run.

    Raises:
        ConfigError: Names the first option that differs.
    """
    for key, old, new in differences(before, now):
        section, _, name = key.partition(".")
        if section != "output" and not (section == "training" and name in FREE_TO_CHANGE):
            raise ConfigError(
                f"cannot resume: {key} was {old!r} and is now {new!r}; keep it, or start "
                "anew without --resume"
            )


def check_same_data(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with other structures or labels than those of the run.

    Raises:
        DataError: Names the set that changed.
    """
    for key, old, new in differences(before, now):
        words = key.split("_")  # hash, name of the set, and 'labels'
        if words[0] == "hash" and words[1] in ("train", "valid"):
            what = "labels" if words[2:] else "frames"
            raise DataError(
                f"cannot resume: the {words[1]} {what} are not those of the run (hash "
                f"{old}, now {new}); put the data back, or start anew without --resume"
            )


def differences(
    before: dict[str, Any], now: dict[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    """Return dotted key, old and new value wherever two nested dicts differ.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
        [('a.c', 2, 3)]
    """
    found: list[tuple[str, Any, Any]] = []
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append((f"{prefix}{key}", old, new))
    return found
