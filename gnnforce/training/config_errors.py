"""What is wrong with a configuration, in one line that names the key."""

import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gnnforce.errors import did_you_mean


def one_line(error: ValidationError, values: Any, root: type[BaseModel]) -> str:  # noqa: ANN401
    """Say the first mistake, and how many more there are.

    Args:
        error: What pydantic found.
        values: The nested values it was given.
        root: The model they were to fill.

    Returns:
        One line with the dotted key and what is wrong with it.
    """
    mistakes = error.errors(include_url=False, include_context=False)
    # an unknown key explains a missing one, and among alternatives the mistake that lies
    # deepest is the one that was meant
    mistakes.sort(key=lambda m: (m["type"] != "extra_forbidden", -len(m["loc"])))
    first = mistakes[0]
    key = _key(first, values)
    others = {_key(m, values) for m in mistakes}
    others = {other for other in others if not key.startswith(other)}
    more = f" ({len(others)} more: {', '.join(sorted(others))})" if others else ""
    return _describe(first, key, root) + more


def dotted(location: tuple[int | str, ...], values: Any) -> str:  # noqa: ANN401
    """Return the key of a location, without the names pydantic gives to alternatives.

    Example:
        >>> dotted(("data", "valid", "float"), {"data": {"valid": "x"}})
        'data.valid'
    """
    parts: list[str] = []
    inside = values
    for part in location:
        if isinstance(inside, dict) and part in inside:
            inside = inside[part]
        elif isinstance(inside, list | tuple) and isinstance(part, int):
            inside = inside[part] if part < len(inside) else None
        else:
            continue
        parts.append(str(part))
    return ".".join(parts)


def _key(mistake: Any, values: Any) -> str:  # noqa: ANN401
    location = mistake["loc"]
    key = dotted(location, values)
    if mistake["type"] != "missing":
        return key
    return f"{key}.{location[-1]}" if key else str(location[-1])


def option_names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted names of every option."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                names += option_names(inner, f"{prefix}{name}.")
    return names


def _describe(mistake: Any, key: str, root: type[BaseModel]) -> str:  # noqa: ANN401
    kind, given = mistake["type"], mistake["input"]
    if kind == "extra_forbidden":
        return f"unknown key {key}." + _suggest(key, root)
    if kind == "missing":
        return f"{key} is missing"
    reason = mistake["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{key}: {reason}" if key else reason
    reason = (
        reason.removeprefix("Input ").replace("valid ", "").replace("a int", "an int")
    )
    reason = reason.partition(", unable to parse")[0].partition(" or instance of ")[0]
    return f"{key} {reason}, not {given!r}" if key else reason


def _suggest(key: str, root: type[BaseModel]) -> str:
    """Suggest a sibling first, then any option whose name or last word is near."""
    section, _, name = key.rpartition(".")
    every = option_names(root)
    start = f"{section}." if section else ""
    # model.heads.NAME.members is the option model.heads.members
    schema = re.sub(r"\.heads\.[^.]+\.", ".heads.", start)
    siblings = [n.removeprefix(schema) for n in every if n.startswith(schema)]
    siblings = [n for n in siblings if "." not in n]
    near = did_you_mean(name, siblings)
    if near:
        return near.replace("'", f"'{start}", 1)
    same = [n for n in every if n.rpartition(".")[2] == name]
    if same:
        return f" Did you mean {same[0]!r}?"
    return did_you_mean(key, every) or did_you_mean(
        ".".join(name.split("_")[::-1]),
        ["weights.energy", "weights.forces", "weights.stress"],
    )
