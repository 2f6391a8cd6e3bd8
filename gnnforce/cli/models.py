"""Opening a model for a command: device, precision and heads, checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnforce.errors import UserError

if TYPE_CHECKING:
    from gnnforce.models.force_field import ForceField


def open_model(path: Path, device: str = "cpu", dtype: str | None = None) -> "ForceField":
    """Load a model file.

    Args:
        path: The file.
        device: Name of a torch device.
        dtype: ``"float32"``, ``"float64"``, or None for the model's own.

    Returns:
        The model in evaluation mode.

    Raises:
        UserError: For a file that is no model, or a device or dtype that is not there.
    """
    from gnnforce.models.checkpoint import load, parse_dtype  # noqa: PLC0415

    check_device(device)
    return load(path, device=device, dtype=None if dtype is None else parse_dtype(dtype))


def check_device(device: str) -> None:
    """Check that torch can compute there.

    Raises:
        UserError: For a device that does not exist or is not there.

    Example:
        >>> check_device("cpu")
    """
    import torch  # noqa: PLC0415

    try:
        kind = torch.device(device).type
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(
            f"there is no device {device!r} here; try --device cpu"
        ) from error
    if kind == "meta":
        raise UserError("nothing can be computed on the device 'meta'; try --device cpu")


def pick_heads(model: "ForceField", names: Sequence[str] | None) -> list[str]:
    """Return the names of the heads that are meant, each once, in the order given.

    Args:
        model: The model.
        names: Names, or numbers counted from 0, or ``all`` for every head that had
            labels in training; the model's first head if there are none.

    Returns:
        Names of heads.

    Raises:
        UnknownHeadError: Lists the heads.
    """
    if not names:
        return [pick_head(model, None)]
    untrained = model.metadata.get("untrained_heads", [])
    trained = [name for name in model.head_names if name not in untrained]
    chosen: list[str] = []
    for name in names:
        every = name == "all" and "all" not in model.head_names
        chosen += trained if every else [pick_head(model, name)]
    return list(dict.fromkeys(chosen))


def pick_head(model: "ForceField", name: str | None) -> str:
    """Return the name of the one head that is meant, see :func:`pick_heads`.

    Raises:
        UnknownHeadError: Lists the heads.
    """
    from gnnforce.calculators.settings import select_head  # noqa: PLC0415

    number = name is not None and name.isdigit() and name not in model.head_names
    return select_head(model, int(str(name)) if number else name)
