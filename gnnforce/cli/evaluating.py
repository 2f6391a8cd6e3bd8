"""Steps of ``gnnforce evaluate``: labels, predictions, errors and calibration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ase import Atoms

from gnnforce.datasets.dataset import StructureDataset
from gnnforce.datasets.keys import DEFAULT_KEYS, count_keys, present_keys
from gnnforce.datasets.labels import LabelSpec, LabelTable, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError, GeometryError, StatisticsError
from gnnforce.models.force_field import ForceField
from gnnforce.training.evaluate import Compared, Evaluation, evaluate
from gnnforce.uncertainty.calibration import calibrate

QUANTITIES = ("energy", "forces", "stress")


@dataclass(frozen=True)
class FileEvaluation:
    """What a test says.

    Attributes:
        evaluation: Errors, and the arrays they are made of.
        report: Plain values for JSON: frames, keys of the labels, and for each head the
            errors of its quantities and, for a committee, how its uncertainty does.
        lines: For people: which labels were read from where.
    """

    evaluation: Evaluation
    report: dict[str, Any]
    lines: list[str]


def evaluate_file(
    model: ForceField,
    path: Path,
    heads: Sequence[str],
    *,
    index: str = ":",
    keys: dict[str, str] | None = None,
    allow_nan: bool = False,
    batch_size: int = 16,
) -> FileEvaluation:
    """Test heads of a model on the labels of a file.

    Args:
        model: The model.
        path: Labeled structures in any format that ASE reads.
        heads: Names of heads of the model.
        index: Which frames, as a slice of Python.
        keys: Values of :class:`~gnnforce.datasets.keys.LabelSpec` such as ``energy``,
            ``forces`` or ``energy_unit`` that replace the usual ones.
        allow_nan: Take nan for "not known", also where the training did not.
        batch_size: Structures at a time.

    Returns:
        Errors and calibration.

    Raises:
        UserError: For a file that cannot be read, labels that are missing or not finite,
            an element the model does not know.
    """
    frames = read_frames(path, index)
    try:
        table = read_labels(frames, model, heads, keys or {}, allow_nan=allow_nan)
        dataset = StructureDataset(frames, table, model.head_names, model.cutoff)
    except (DataError, GeometryError) as error:
        raise type(error)(f"{path}: {error}") from error
    dataset.check_elements(model.elements)
    evaluation = evaluate(model, dataset, batch_size=batch_size)
    report = {
        "data": path,
        "frames": evaluation.metrics["n_frames"],
        "atoms": evaluation.metrics["n_atoms"],
        "keys": {head: table.keys_used[head] for head in heads},
        "heads": {head: head_report(evaluation, head) for head in heads},
    }
    return FileEvaluation(evaluation, report, table.summary())


def read_labels(
    frames: Sequence[Atoms],
    model: ForceField,
    heads: Sequence[str],
    keys: dict[str, str],
    *,
    allow_nan: bool = False,
) -> LabelTable:
    """Read labels from the keys named, else those of the training, else the usual ones.

    What ``gnnforce predict`` has written for a head is never taken for its labels.

    Args:
        frames: The structures.
        model: The model, which remembers its training.
        heads: Names of heads.
        keys: Values of ``LabelSpec`` named by the user.
        allow_nan: Take nan for "not known"; otherwise as in the training.

    Returns:
        The labels.

    Raises:
        DataError: For labels that are missing, with the keys there are.
    """
    specs = []
    for head in heads:
        values = trained_keys(model, head) | keys
        for quantity in QUANTITIES:
            own = f"{head}_{quantity}"
            if quantity not in values and _is_prediction(frames, own):
                values[quantity] = _usual_key(frames, quantity)
        specs.append(LabelSpec(head, **values))
    named = {name for name in (*QUANTITIES, "virial") if name in keys}
    forces_only = all(spec.forces and not spec.energy for spec in specs)
    usual = {"forces"} if forces_only else {"energy"}
    config = model.metadata.get("training", {}).get("config", {})
    trained = config.get("data", {})
    every = (*QUANTITIES, "virial")
    return extract_labels(
        frames,
        specs,
        require=named or usual,
        forces_limit=trained.get("forces_limit"),
        allow_nan=every if allow_nan else trained.get("allow_nan", ()),
    )


def trained_keys(model: ForceField, head: str) -> dict[str, str]:
    """Return the keys and units of the labels that a head was trained on.

    Args:
        model: The model.
        head: Name of a head.

    Returns:
        Values of ``LabelSpec``; empty for a model that was not made by training.
    """
    data = model.metadata.get("training", {}).get("data", {})
    facts = data.get("labels", {}).get(head, {})
    units = {f"{name}_unit": unit for name, unit in facts.get("units", {}).items()}
    return dict(facts.get("keys", {})) | units


def head_report(evaluation: Evaluation, head: str) -> dict[str, Any]:
    """Put errors and calibration of one head into plain values.

    Args:
        evaluation: The evaluation.
        head: Name of a head.

    Returns:
        ``energy``, ``energy_per_atom``, ``forces``, ``stress`` with ``mae``, ``rmse``,
        ``count`` and ``unit`` (what has no labels is left out), and, for a committee,
        ``uncertainty`` with correlations, scale and coverage of each quantity.
    """
    metrics = evaluation.metrics["heads"][head]
    report = {name: entry for name, entry in metrics.items() if entry["count"]}
    tables = (evaluation.energy, evaluation.forces, evaluation.stress)
    uncertainty = {
        name: calibration_report(table[head])
        for name, table in zip(QUANTITIES, tables, strict=True)
        if head in table and table[head].std is not None
    }
    return report | ({"uncertainty": uncertainty} if uncertainty else {})


def calibration_report(found: Compared) -> dict[str, Any]:
    """Say how well predicted standard deviations tell errors.

    Args:
        found: What was compared, of a committee.

    Returns:
        Values of :class:`~gnnforce.uncertainty.calibration.Calibration`, or the reason
        why there are none under ``undefined``.
    """
    assert found.std is not None
    try:
        return calibrate(found.std, found.mean - found.reference).as_dict()
    except StatisticsError as error:
        return {"undefined": str(error)}


def _is_prediction(frames: Sequence[Atoms], key: str) -> bool:
    """Tell what predict wrote of a committee from a label: it has a deviation beside."""
    spread = f"{key}_std"
    return any(spread in atoms.info or spread in atoms.arrays for atoms in frames)


def _usual_key(frames: Sequence[Atoms], quantity: str) -> str:
    """Return the first usual key that a frame has, or the most usual of all."""
    there = present_keys(count_keys(frames))
    usual = DEFAULT_KEYS[quantity]
    return next((key for key in usual if key in there), usual[0])
