"""Model files: constructor arguments, state and provenance, no pickled classes."""

import os
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch

from gnnforce.backbones.base import BACKBONES
from gnnforce.errors import ModelFileError, UserError, did_you_mean
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

FORMAT = "gnnforce-model"
FORMAT_VERSION = 1
UNITS = {"energy": "eV", "length": "Angstrom", "stress": "eV/Angstrom^3"}
PLAIN = (str, bool, int, float)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save(model: ForceField, path: str | Path) -> None:
    """Write a model to one file, whole or not at all.

    Args:
        model: Any force field; metadata must be plain values.
        path: File to write, its folder must exist.

    Raises:
        ModelFileError: When the folder is missing or cannot be written to, or metadata
            are not plain values.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ModelFileError(f"cannot save {path}: there is no folder {path.parent}")
    content = describe(model) | {"state": model.state_dict()}
    try:
        _write(content, path)
    except OSError as error:
        raise ModelFileError(f"cannot save {path}: {error}") from error


def _write(content: dict[str, Any], path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        torch.save(content, name)
        Path(name).chmod(0o666 & ~_umask())  # mkstemp's files are the owner's only
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def describe(model: ForceField) -> dict[str, Any]:
    """Return everything about a model but its weights, as plain values.

    Raises:
        ModelFileError: For metadata that are not text, numbers, lists and dicts.

    Example:
        >>> from gnnforce.backbones.schnet import SchNet
        >>> describe(ForceField(SchNet([1, 8]), [Head("energy")]))["elements"]
        [1, 8]
    """
    from importlib.metadata import version  # noqa: PLC0415

    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "backbone": {
            "name": type(model.backbone).__name__,
            "arguments": plain(model.backbone.arguments(), "backbone"),
        },
        "heads": [head.arguments() for head in model.heads],
        "repulsion": model.repulsion is not None,
        "elements": list(model.elements),
        "cutoff": float(model.cutoff),
        "dtype": str(model.dtype).removeprefix("torch."),
        "units": dict(UNITS),
        "references": model.references(),
        "scales": model.scales(),
        "versions": {name: version(name) for name in ("gnnforce", "torch")},
        "metadata": plain(model.metadata, "metadata"),
    }


def plain(value: Any, name: str) -> Any:  # noqa: ANN401
    """Copy nested plain values, turning numpy scalars and tuples into Python's.

    Raises:
        ModelFileError: For anything else, naming where it stands.

    Example:
        >>> import numpy
        >>> plain({"rmse": numpy.float64(0.5), "size": (1, 2)}, "metadata")
        {'rmse': 0.5, 'size': [1, 2]}
    """
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, dict):
        return {plain(k, name): plain(v, f"{name}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, str | os.PathLike):
        return str(value)
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        single = value.item()  # a date, a complex or a long double stays what it is
        if type(single) in PLAIN:
            return single
    raise ModelFileError(f"{name} of the model cannot be saved: {type(value).__name__}")


def load(
    path: str | Path,
    device: str | torch.device = "cpu",
    dtype: Literal["float32", "float64"] | torch.dtype | None = None,
) -> ForceField:
    """Read a model file.

    Nothing in the file is executed (``weights_only=True``), nothing is written.

    Args:
        path: A file written by :meth:`ForceField.save`.
        device: Where to put the model.
        dtype: ``"float32"``, ``"float64"``, or None for the one it was saved in.

    Returns:
        The model, in evaluation mode.

    Raises:
        ModelFileError: For a file that is missing, truncated, of another format or of
            a newer version, or a backbone that is not registered.
    """
    content = read(path)
    try:
        name = content["backbone"]["name"]
        if name not in BACKBONES:
            raise ModelFileError(
                f"{path} uses the backbone {name!r}, which is not defined here; import the "
                f"module that defines it first.{did_you_mean(name, BACKBONES)}"
            )
        model = _build(content)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelFileError(f"{path} does not fit this version: {reason}") from error
    if dtype is not None:
        model = model.to(parse_dtype(dtype))
    return model.to(device).eval()


def _build(content: dict[str, Any]) -> ForceField:
    # building layers draws weights, which must not move the caller's random state
    with torch.random.fork_rng(devices=[]):
        name = content["backbone"]["name"]
        backbone = BACKBONES[name](**content["backbone"]["arguments"])
        heads = [Head(**arguments) for arguments in content["heads"]]
        model = ForceField(
            backbone,
            heads,
            repulsion=content["repulsion"],
            metadata=content["metadata"],
        )
    model.to(parse_dtype(content["dtype"])).load_state_dict(content["state"])
    return model


def read(path: str | Path) -> dict[str, Any]:
    """Read the content of a model file and check that it is one.

    Raises:
        ModelFileError: See :func:`load`.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        file = path.open("rb")
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    with file:
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # bytes that are no model end in errors of any kind
            raise ModelFileError(
                f"{path} is not a gnnforce model file, or is truncated"
            ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a gnnforce model file")
    newest = content.get("format_version")
    if not isinstance(newest, int) or newest > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {newest}, this gnnforce reads up to "
            f"{FORMAT_VERSION}; update gnnforce"
        )
    return content


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype of a name.

    Raises:
        UserError: For anything but float32 and float64.

    Example:
        >>> parse_dtype("float64")
        torch.float64
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UserError(f"dtype must be float32 or float64, not {name!r}")
    return DTYPES[name]
