"""Reading a calculator's arguments: which model, where, in which precision, which head."""

import copy
import warnings
from pathlib import Path

import torch
from ase import Atoms

from gnnforce.errors import UnknownHeadError, UserError
from gnnforce.graph.convert import spin_multiplicity, total_charge
from gnnforce.models.checkpoint import load, parse_dtype
from gnnforce.models.force_field import ForceField
from gnnforce.models.heads import choose_head


def place_model(
    model: str | Path | ForceField,
    device: str | torch.device | None,
    dtype: str | torch.dtype | None,
) -> ForceField:
    """Return the model on a device and in a precision, loading it if need be.

    A model that is already there is returned itself. Otherwise a copy is converted, so
    that whoever else holds the model keeps it as it was.

    Args:
        model: A file or a model.
        device: ``None`` keeps a model's own and means the CPU for a file.
        dtype: A name, a ``torch.dtype``, or ``None`` for the model's own.

    Returns:
        The model.

    Raises:
        ModelFileError: For a file that is no model.
        UserError: For another dtype, or a model that is no ``ForceField``.
    """
    kind = None if dtype is None else parse_dtype(dtype)
    if isinstance(model, str | Path):
        return load(model, device="cpu" if device is None else device, dtype=kind)
    if not isinstance(model, ForceField):
        raise UserError(
            f"a calculator needs a model file or a ForceField, not a {type(model).__name__}"
        )
    where = model.device if device is None else torch.device(device)
    kind = model.dtype if kind is None else kind
    if (where, kind) == (model.device, model.dtype):
        return model
    return copy.deepcopy(model).to(device=where, dtype=kind)


def select_head(model: ForceField, head: str | int | None) -> str:
    """Return the name of the head that is meant.

    Args:
        model: The model.
        head: A name, a number in the order of ``model.head_names``, or ``None`` for the
            model's only or first head.

    Returns:
        The name.

    Raises:
        UnknownHeadError: For a head the model does not have, or one that its metadata
            list under ``untrained_heads``; the message lists the heads.
    """
    if isinstance(head, int):
        if isinstance(head, bool) or not 0 <= head < len(model.head_names):
            raise UnknownHeadError(
                f"no head number {head}; the model has {', '.join(model.head_names)}, "
                "counted from 0"
            )
        head = model.head_names[head]
    name = choose_head(model, head)
    untrained = model.metadata.get("untrained_heads", [])
    if name in untrained:
        trained = [other for other in model.head_names if other not in untrained]
        raise UnknownHeadError(
            f"head {name!r} had no labels in training and knows nothing; trained heads: "
            f"{', '.join(trained) or 'none'}"
        )
    return name


def state_of(atoms: Atoms) -> dict[str, float]:
    """Return charge and spin multiplicity, which a backbone may be conditioned on.

    Raises:
        GeometryError: For values that are no whole numbers.
    """
    return {
        "charge": total_charge(atoms),
        "spin_multiplicity": spin_multiplicity(atoms),
    }


def warn_of_charge(atoms: Atoms) -> bool:
    """Warn when a structure has a charge, which the backbones do not read.

    Args:
        atoms: The structure, with its charge in ``info``.

    Returns:
        Whether there was a warning.

    Raises:
        GeometryError: For a charge that is no whole number.
    """
    charge = total_charge(atoms)
    if charge == 0:
        return False
    warnings.warn(
        f"the structure has charge {charge:g}, but this model does not read charges: it "
        "answers as for the charge of its training data (said once)",
        stacklevel=2,
    )
    return True
