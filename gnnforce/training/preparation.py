"""Configuration to data and model: everything that can be wrong is found here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnforce.datasets.dataset import StructureDataset
from gnnforce.datasets.duplicates import label_hash, structure_hash
from gnnforce.datasets.labels import LabelTable
from gnnforce.datasets.readers import read_frames
from gnnforce.datasets.references import fit_references
from gnnforce.datasets.splits import split_frames
from gnnforce.datasets.statistics import force_rms
from gnnforce.errors import ConfigError, DataError
from gnnforce.models.force_field import ForceField
from gnnforce.training.building import build_model
from gnnforce.training.config import TrainingConfig
from gnnforce.training.labeled import (
    Part,
    Say,
    check_duplicates,
    make_datasets,
    read_part,
    required_labels,
)
from gnnforce.training.metrics import LABELED
from gnnforce.training.schedule import check_schedule, labels_in_use

OUTLIERS = 10.0  # root mean square over typical force, above which few forces decide it


@dataclass(frozen=True)
class Prepared:
    """What a run works on.

    Attributes:
        config: The configuration, with weights of absent labels set to zero.
        model: The model at its start, with references and scales.
        train: Training frames.
        valid: Validation frames, None without any.
        test: Test frames, None without any.
        quantities: What has labels and a weight.
        facts: Plain values about the data, kept in the model file.
    """

    config: TrainingConfig
    model: ForceField
    train: StructureDataset
    valid: StructureDataset | None
    test: StructureDataset | None
    quantities: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def prepare(config: TrainingConfig, say: Say) -> Prepared:
    """Read the data, split them and make the model.

    Args:
        config: The run.
        say: Told what people should know, in lines.

    Returns:
        Everything that training needs.

    Raises:
        UserError: For files, labels or options that cannot be used.
    """
    whole = read_part(config, config.data.train, required_labels(config), say)
    train, valid = split(config, whole, say)
    if valid is None and config.training.early_stopping is not None:
        raise ConfigError(
            "training.early_stopping needs validation frames; set data.valid, or "
            "training.early_stopping=null"
        )
    test = None
    if config.data.test is not None:
        test = read_part(config, config.data.test, (), say)
    check_duplicates(config, train, valid, test)
    table = train.table
    quantities = trained_quantities(config, table)
    elements = {int(number) for atoms in train.frames for number in atoms.numbers}
    model = build_model(config, sorted(elements))
    facts: dict[str, Any] = {"labels": label_facts(config, table, say)}
    facts["references"] = set_references(model, config, train, say)
    set_scales(model, table, say)
    parts = make_datasets(model, [train, valid, test])
    assert parts[0] is not None
    for part, name in zip(parts, ("train", "valid", "test"), strict=True):
        facts[f"n_{name}"] = 0 if part is None else len(part)
        facts[f"hash_{name}"] = None if part is None else structure_hash(part.frames)
        facts[f"hash_{name}_labels"] = None if part is None else label_hash(part.table)
    for line in parts[0].summary():
        if line not in table.summary():  # charges and spins
            say(f"training frames: {line}")
    resolved = with_weights_of(config, quantities)
    return Prepared(resolved, model, parts[0], parts[1], parts[2], quantities, facts)


def split(config: TrainingConfig, whole: Part, say: Say) -> tuple[Part, Part | None]:
    """Return training and validation frames: of two files, or a random split of one.

    Raises:
        DataError: When no frame is left for training.
    """
    valid, n_frames = config.data.valid, len(whole.rows)
    if isinstance(valid, str):
        return whole, read_part(config, valid, (), say)
    n_valid = 0 if valid is None else round(valid * n_frames)
    if n_valid == 0:
        reason = "" if valid is None else f" (data.valid={valid:g} of {n_frames} frames)"
        say(f"no validation{reason}: the last model is saved, not the best")
        return whole, None
    if n_valid >= n_frames:
        raise DataError(
            f"data.valid={valid:g} of {n_frames} frames leaves none for training; give "
            "more frames, a smaller fraction, or data.valid=null"
        )
    places = split_frames(
        whole.frames,
        fraction=valid,
        seed=config.seed,
        group_key=config.data.group_key,
    )
    say(f"{len(places.train)} frames for training, {len(places.valid)} for validation")
    return whole.pick(places.train), whole.pick(places.valid) if places.valid else None


def trained_quantities(config: TrainingConfig, table: LabelTable) -> tuple[str, ...]:
    """Return what has both labels and a weight.

    Raises:
        DataError: When nothing has.
        ConfigError: When nothing has in some part of the run.
    """
    counts = table.counts
    found = tuple(
        quantity
        for quantity in labels_in_use(config.training)
        if any(counts[head][quantity] for head in counts)
    )
    if not found:
        raise DataError("nothing to train: no label has a weight in training.weights")
    check_schedule(config.training, found)
    return found


def set_references(
    model: ForceField, config: TrainingConfig, train: Part, say: Say
) -> dict[str, Any]:
    """Give the model its energies of isolated atoms.

    Returns:
        Where they come from by head, and the heads whose fit had several solutions.
    """
    isolated = None
    if config.data.isolated_atoms is not None:
        isolated = read_frames(config.data.isolated_atoms)
    given: Any = config.data.references
    found = fit_references(
        train.frames,
        train.table,
        model.head_names,
        model.elements,
        given=None if isinstance(given, str) else given,
        isolated=isolated,
    )
    for line in found.messages:
        say(line)
    model.set_references(found.table)
    return {"origin": dict(found.origin), "rank_deficient": list(found.deficient)}


def set_scales(model: ForceField, table: LabelTable, say: Say) -> None:
    """Scale the output of every labeled head by the size of its forces."""
    for head in table.heads:
        if any(table.counts[head].values()):
            scale = force_rms(table, head)
            typical = typical_force(table, head)
            if typical > 0 and scale > OUTLIERS * typical:
                say(
                    f"head {head!r}: a few forces are far above the others (root mean "
                    f"square {scale:.3g}, typical {typical:.3g} eV/Å): scaled by the latter"
                )
                scale = typical
            model.set_scales({head: scale})


def typical_force(table: LabelTable, head: str) -> float:
    """Return what the root mean square component would be without outliers (eV/Å).

    From the median of the absolute components that are not zero, which for a normal
    distribution is 0.6745 of its width; 0 without forces.
    """
    labels = [frame[head] for frame in table.labels]
    parts = [x.forces[x.forces_mask].ravel() for x in labels if x.forces is not None]
    sizes = np.abs(np.concatenate(parts)) if parts else np.zeros(0)
    sizes = sizes[sizes > 0]
    return float(np.median(sizes)) / 0.6745 if sizes.size else 0.0


def with_weights_of(config: TrainingConfig, quantities: Sequence[str]) -> TrainingConfig:
    """Return the configuration with zero weight for labels that are not there."""
    absent = dict.fromkeys((q for q in LABELED if q not in quantities), 0.0)
    options = config.training
    weights = options.weights.model_copy(update=absent)
    stages = tuple(stage.model_copy(update=absent) for stage in options.weight_schedule)
    changed = {"weights": weights, "weight_schedule": stages}
    return config.model_copy(update={"training": options.model_copy(update=changed)})


def label_facts(config: TrainingConfig, table: LabelTable, say: Say) -> dict[str, Any]:
    """Return what is known of the labels of every head, and tell of heads without."""
    facts: dict[str, Any] = {}
    for head in config.model.heads:
        counts = table.counts.get(head, dict.fromkeys(LABELED, 0))
        facts[head] = {
            "counts": dict(counts),
            "keys": dict(table.keys_used.get(head, {})),
            "units": dict(table.units.get(head, {})),
        }
        if not any(counts.values()):
            say(f"head {head!r} has no labels: it is not trained, and marked so")
    return facts
