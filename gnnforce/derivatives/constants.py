"""The cost model's constants of this machine, kept in a file."""

import json
import math
import os
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from gnnforce.derivatives.cost import DEFAULTS, Constants, Rate
from gnnforce.errors import UserError

VARIABLE = "GNNFORCE_CACHE"
FILE_NAME = "strategies.json"
FORMAT = 1


def cache_file() -> Path:
    """Return where constants are kept.

    ``strategies.json`` in the folder ``GNNFORCE_CACHE``, else ``gnnforce`` below
    ``XDG_CACHE_HOME``, else ``~/.cache/gnnforce``.
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        return Path(given).expanduser() / FILE_NAME
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if root else Path("~/.cache").expanduser()
    return base / "gnnforce" / FILE_NAME


def device_name(device: torch.device) -> str:
    """Return under which name a device's constants are kept."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return device.type


def constants_for(device: torch.device) -> Constants:
    """Return what was measured for a device on this machine, else the defaults.

    A file that cannot be read is warned about once and left aside.
    """
    path = cache_file()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:  # never calibrated
        return DEFAULTS
    return _read(path, changed).get(device_name(device), DEFAULTS)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> dict[str, Constants]:  # noqa: ARG001  (is the key)
    """Read the constants of all devices; none from a file that is not understood."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r} is not {FORMAT}")
        return {name: _constants(one) for name, one in content["devices"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{path} cannot be used ({type(error).__name__}: {error}), so strategy='auto' "
            "goes by default constants; run gnnforce.calibrate() or delete the file",
            stacklevel=2,
        )
        return {}


def _constants(values: dict[str, Any]) -> Constants:
    rates = {name: Rate(**rate) for name, rate in values["rates"].items()}
    missing = [name for name in DEFAULTS.rates if name not in rates]
    if missing:
        raise ValueError(f"no rates for {', '.join(missing)}")
    result = Constants(rates, float(values["product"]))
    numbers = [result.product]
    for rate in rates.values():
        numbers += [rate.start, rate.start_size, rate.row, rate.row_size]
    if not all(isinstance(n, float | int) and 0 <= n < math.inf for n in numbers):
        raise ValueError("rates must be finite and not negative")
    return result


def write_constants(device: torch.device, constants: Constants) -> Path:
    """Keep the constants of a device, beside those of others.

    Raises:
        UserError: When the file cannot be written.
    """
    path = cache_file()
    try:
        devices = json.loads(path.read_text(encoding="utf-8"))["devices"]
        kept = {name: _constants(one).as_dict() for name, one in devices.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = {}
    kept[device_name(device)] = constants.as_dict()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(
            json.dumps({"format": FORMAT, "devices": kept}, indent=1) + "\n",
            encoding="utf-8",
        )
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}); set {VARIABLE} to a folder that can "
            "be written"
        ) from error
    return path
