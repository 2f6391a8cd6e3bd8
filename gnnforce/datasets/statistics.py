"""Sizes of labels, for the scale of the network and for people."""

import warnings

import numpy as np

from gnnforce.datasets.labels import LabelTable
from gnnforce.errors import DataError, did_you_mean


def force_rms(table: LabelTable, head: str) -> float:
    r"""Return the root mean square force component of a head in eV/Angstrom.

    .. math:: \sqrt{\langle F_{i\alpha}^2 \rangle}

    The mean is over components of atoms that have a force.

    Args:
        table: The labels.
        head: Name of the head.

    Returns:
        The scale; 1 with a warning when there are no forces or all are zero.

    Warns:
        UserWarning: When 1 is returned for want of a scale.

    Raises:
        DataError: For a head that the table does not have.
    """
    if head not in table.heads:
        raise DataError(
            f"no labels of head {head!r}; there are {', '.join(table.heads)}."
            + did_you_mean(head, table.heads)
        )
    labels = [frame[head] for frame in table.labels]
    parts = [
        label.forces[label.forces_mask] for label in labels if label.forces is not None
    ]
    values = np.concatenate(parts) if parts else np.zeros((0, 3))
    scale = float(np.sqrt((values**2).mean())) if values.size else 0.0
    if scale > 0 and np.isfinite(scale):
        return scale
    what = "all forces are zero" if values.size else "there are no forces"
    warnings.warn(f"head {head!r}: {what}, so its scale is 1", stacklevel=2)
    return 1.0


def largest_force(table: LabelTable) -> tuple[float, int] | None:
    """Return the largest force in eV/Angstrom and its frame, None without forces."""
    return table.largest_force
