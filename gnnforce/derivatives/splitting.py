"""Many rows in pieces that fit into a limit of memory."""

import math
import os
import re

from gnnforce.errors import ConfigError

DEFAULT_MEMORY = 2 * 1024**3  # bytes
VARIABLE = "GNNFORCE_MEMORY"

_UNITS = {"": 1, "k": 1, "m": 2, "g": 3, "t": 4}
_PATTERN = re.compile(
    r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE
)


def memory_limit(given: float | str | None = None) -> int:
    """Return how many bytes the temporaries of one piece may take.

    What is given, else the environment variable ``GNNFORCE_MEMORY``, else 2 GiB. It bounds
    an estimate of what outputs take while they go through the backbone; a piece is never
    less than one of them. The forward pass, the results and the slopes of all outputs in
    the node features, ``(n_outputs, n_atoms, n_features)``, come on top, as does the
    graph of all pieces with ``create_graph``.

    Args:
        given: A number of bytes, or text such as ``"500MB"``, ``"2GiB"``, ``"1e9"``.

    Raises:
        ConfigError: For what is not a positive number of bytes.

    Example:
        >>> memory_limit("1.5 GiB"), memory_limit(1e6)
        (1610612736, 1000000)
    """
    if given is not None:
        return _parse(given, "memory")
    variable = os.environ.get(VARIABLE, "")
    return _parse(variable, VARIABLE) if variable.strip() else DEFAULT_MEMORY


def _parse(given: object, name: str) -> int:
    """Read a number of bytes."""
    match = _PATTERN.fullmatch(str(given))
    value = 0.0
    if match is not None and not isinstance(given, bool):
        number, unit, binary = match.groups()
        power = 0 if not unit else _UNITS[unit.lower()]
        value = float(number) * (1024 if binary else 1000) ** power
    if not 1 <= value < math.inf:
        raise ConfigError(
            f"{name}={given!r} is not a number of bytes; write for example "
            "2000000000, '500MB' or '2GiB'"
        )
    return int(value)


def rows_at_once(n_rows: int, bytes_per_row: float, limit: int) -> int:
    """Return the size of even pieces that fit into a limit, at least one row.

    Example:
        >>> rows_at_once(64, bytes_per_row=1e6, limit=30_000_000)
        22
    """
    if n_rows == 0:
        return 1
    most = max(1, min(n_rows, int(limit // max(bytes_per_row, 1))))
    n_pieces = -(-n_rows // most)
    return -(-n_rows // n_pieces)
