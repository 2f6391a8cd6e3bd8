"""The cost model's constants of this machine, kept in a file."""

import json
import math
import os
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from gnnforce.derivatives.cost import DEFAULTS, REFERENCE, Constants, Rate
from gnnforce.errors import UserError

VARIABLE = "GNNFORCE_CACHE"
FILE_NAME = "strategies.json"
FORMAT = 1

Devices = Mapping[str, Mapping[str, Constants]]  # by device and architecture


def cache_file() -> Path:
    """Return where constants are kept.

    ``strategies.json`` in the folder ``GNNFORCE_CACHE``, else ``gnnforce`` below
    ``XDG_CACHE_HOME``, else ``~/.cache/gnnforce``.
    """
    look = os.environ.get
    return _file(look(VARIABLE, ""), look("XDG_CACHE_HOME", ""), look("HOME", ""))


@lru_cache(maxsize=8)
def _file(given: str, root: str, home: str) -> Path:  # noqa: ARG001  (behind "~")
    """Put the path together, once: every evaluation asks for it."""
    if given:
        return Path(given).expanduser() / FILE_NAME
    base = Path(root) if root else Path("~/.cache").expanduser()
    return base / "gnnforce" / FILE_NAME


def device_name(device: torch.device) -> str:
    """Return under which name a device's constants are kept."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return device.type


def constants_for(device: torch.device, architecture: str) -> Constants:
    """Return what was measured for a device on this machine, else the defaults.

    An architecture that was not measured has the constants of ``REFERENCE``. A file that
    cannot be read is warned about once and left aside.

    Args:
        device: Where the model is.
        architecture: Class name of the backbone.
    """
    path = cache_file()
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:  # never calibrated
        known: Mapping[str, Constants] = DEFAULTS
    else:
        known = _read(path, changed).get(device_name(device), DEFAULTS)
    return known.get(architecture, known[REFERENCE])


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> Devices:  # noqa: ARG001  (is the key)
    """Read the constants of all devices; none from a file that is not understood."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r} is not {FORMAT}")
        return _devices(content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{path} cannot be used ({type(error).__name__}: {error}), so strategy='auto' "
            "goes by default constants; run gnnforce.calibrate() or delete the file",
            stacklevel=2,
        )
        return {}


def _devices(content: dict[str, Any]) -> Devices:
    found = {
        device: {name: _constants(values) for name, values in architectures.items()}
        for device, architectures in content["devices"].items()
    }
    for device, architectures in found.items():
        if REFERENCE not in architectures:
            raise ValueError(f"{device} has no constants of {REFERENCE}")
    return found


def _constants(values: dict[str, Any]) -> Constants:
    rates = {name: Rate(**rate) for name, rate in values["rates"].items()}
    missing = [name for name in DEFAULTS[REFERENCE].rates if name not in rates]
    if missing:
        raise ValueError(f"no rates for {', '.join(missing)}")
    result = Constants(rates, float(values["product"]))
    numbers = [result.product]
    for rate in rates.values():
        numbers += [rate.start, rate.start_size, rate.row, rate.row_size]
    if not all(isinstance(n, float | int) and 0 <= n < math.inf for n in numbers):
        raise ValueError("rates must be finite and not negative")
    return result


def write_constants(device: torch.device, measured: Mapping[str, Constants]) -> Path:
    """Keep the constants of a device, by architecture, beside those of other devices.

    Raises:
        UserError: When the file cannot be written.
    """
    path = cache_file()
    try:
        kept = dict(_devices(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = {}
    kept[device_name(device)] = measured
    plain = {
        name: {key: constants.as_dict() for key, constants in architectures.items()}
        for name, architectures in kept.items()
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(
            json.dumps({"format": FORMAT, "devices": plain}, indent=1) + "\n",
            encoding="utf-8",
        )
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}); set {VARIABLE} to a folder that can "
            "be written"
        ) from error
    return path
