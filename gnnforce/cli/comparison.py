"""Predicted against reference values: what plots and tables of a test show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gnnforce.training.evaluate import Compared, Evaluation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Predicted against reference values of one quantity of one head.

    Attributes:
        head: Name of the head.
        quantity: What is compared, such as ``"energy"`` or ``"forces"``.
        unit: Unit of the three arrays.
        reference: Reference values, any shape.
        predicted: Predicted values (committee mean), same shape.
        std: Predicted standard deviations, same shape, or None without a committee.
        note: Printed below the errors in the panel.
        centered: Whether the mean of the reference was taken off both values.
    """

    head: str
    quantity: str
    unit: str
    reference: Array
    predicted: Array
    std: Array | None = None
    note: str = ""
    centered: bool = False

    @property
    def error(self) -> Array:
        """Predicted minus reference, flat."""
        return np.ravel(self.predicted) - np.ravel(self.reference)


def comparisons(evaluation: "Evaluation", heads: Sequence[str]) -> list[list[Comparison]]:
    """Return what there is to plot: a row for each head, energy before forces.

    Args:
        evaluation: Of :func:`gnnforce.training.evaluate.evaluate`.
        heads: Names of heads.

    Returns:
        A row for each head that has labels; quantities without labels are left out.
    """
    rows = []
    for head in heads:
        row = []
        if head in evaluation.energy:
            row.append(energy_comparison(head, evaluation.energy[head]))
        if head in evaluation.forces:
            found = evaluation.forces[head]
            values = (found.reference, found.mean, found.std)
            row.append(Comparison(head, "forces", "eV/Å", *values))
        if row:
            rows.append(row)
    return rows


def energy_comparison(head: str, found: "Compared") -> Comparison:
    """Compare energies so that differences between frames can be seen.

    Frames of one size are compared by total energies relative to the mean of the
    reference, others by energies per atom.

    Args:
        head: Name of the head.
        found: Energies of its frames.

    Returns:
        The comparison; the other kind of error is in its note.
    """
    per_atom = len(set(found.n_atoms.tolist())) > 1
    divisor = found.n_atoms if per_atom else np.ones(len(found.n_atoms))
    reference, predicted = found.reference / divisor, found.mean / divisor
    errors = found.mean - found.reference
    if per_atom:
        note = f"{_milli(errors)} meV a structure"
        name, unit, shift = "energy per atom", "eV/atom", 0.0
    else:
        note = f"{_milli(errors / found.n_atoms)} meV/atom"
        name, unit, shift = "energy", "eV", float(np.mean(reference))
    std = None if found.std is None else found.std / divisor
    return Comparison(
        head=head,
        quantity=name,
        unit=unit,
        reference=reference - shift,
        predicted=predicted - shift,
        std=std,
        note=f"RMSE {note}",
        centered=not per_atom,
    )


def _milli(errors: Array) -> str:
    return f"{1000 * float(np.sqrt(np.mean(errors**2))):.3g}"
