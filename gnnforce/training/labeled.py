"""Files of labeled frames, and the parts of them that a run uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms

from gnnforce.datasets.dataset import StructureDataset
from gnnforce.datasets.duplicates import duplicate_frames
from gnnforce.datasets.labels import LabelSpec, LabelTable, extract_labels
from gnnforce.datasets.readers import read_frames
from gnnforce.errors import DataError, GeometryError, UnknownElementError
from gnnforce.models.force_field import ForceField
from gnnforce.training.config import TrainingConfig
from gnnforce.training.metrics import LABELED

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabeledFile:
    """A file with its labels.

    Attributes:
        path: Where it is.
        frames: All its structures.
        table: Their labels.
    """

    path: str
    frames: list[Atoms]
    table: LabelTable


@dataclass(frozen=True)
class Part:
    """Some frames of a file.

    Attributes:
        file: The file.
        rows: Numbers of the frames in it.
    """

    file: LabeledFile
    rows: list[int]

    @property
    def frames(self) -> list[Atoms]:
        """The structures."""
        return [self.file.frames[row] for row in self.rows]

    @property
    def table(self) -> LabelTable:
        """Their labels."""
        return self.file.table.subset(self.rows)

    def pick(self, places: Sequence[int]) -> "Part":
        """Return some of these frames."""
        return Part(self.file, [self.rows[place] for place in places])


def required_labels(config: TrainingConfig) -> tuple[str, ...]:
    """Return the quantities that must be found: keys and weights that the user named.

    Energies are required as well unless forces are and energies have no weight, so that
    data without any label are refused.
    """
    heads, weights = config.data.heads.values(), config.training.weights
    explicit = weights.model_fields_set
    named = {q for q in (*LABELED, "virial") for head in heads if getattr(head, q)}
    named |= {q for q in explicit if getattr(weights, q) > 0}
    named -= {q for q in explicit if getattr(weights, q) == 0}
    if not named & {"energy", "forces"}:
        named.add("energy")
    return tuple(sorted(named))


def read_part(
    config: TrainingConfig, path: str, require: Sequence[str], say: Say
) -> Part:
    """Read a file and tell what was found.

    Frames without any label are left out and counted.

    Args:
        config: The run.
        path: The file.
        require: Quantities that must be there.
        say: Told what people should know, in lines.

    Raises:
        DataError: Names the file and the frame.
    """
    data = config.data
    specs = [LabelSpec(head, **keys.model_dump()) for head, keys in data.heads.items()]
    frames = read_frames(path)
    try:
        table = extract_labels(
            frames,
            specs,
            require=require,
            forces_limit=data.forces_limit,
            on_bad=data.on_bad,
            allow_nan=data.allow_nan,
            weight_key=data.weight_key if require else None,
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    name = Path(path).name
    for line in table.summary():
        say(f"{name}: {line}")
    rows = [row for row in range(len(frames)) if _has_labels(table, row)]
    if len(rows) < len(frames):
        say(f"{name}: {len(frames) - len(rows)} frames without any label are left out")
    if not rows:
        raise DataError(f"{path}: no frame has a label of {', '.join(data.heads)}")
    return Part(LabeledFile(path, frames, table), rows)


def make_datasets(
    model: ForceField, parts: Sequence[Part | None]
) -> list[StructureDataset | None]:
    """Build the graphs of parts, every file once; frames keep their number in the file.

    Raises:
        GeometryError: Names the file and the frame that is no structure.
        UnknownElementError: For an element that the model does not know.
    """
    whole: dict[str, StructureDataset] = {}
    result: list[StructureDataset | None] = []
    for part in parts:
        if part is None:
            result.append(None)
            continue
        file = part.file
        try:
            if file.path not in whole:
                whole[file.path] = StructureDataset(
                    file.frames, file.table, model.head_names, model.cutoff
                )
                whole[file.path].check_elements(model.elements)
        except (GeometryError, UnknownElementError) as error:
            raise type(error)(f"{file.path}: {error}") from error
        result.append(whole[file.path].subset(part.rows))
    return result


def check_duplicates(
    config: TrainingConfig, train: Part, valid: Part | None, test: Part | None
) -> None:
    """Refuse frames that are both learned and tested.

    Raises:
        DataError: Names the first of them in both files.
    """
    if config.data.allow_duplicates:
        return
    for part, name in ((valid, "validation"), (test, "test")):
        found = [] if part is None else duplicate_frames(train.frames, part.frames)
        if part is not None and found:
            one, other = train.rows[found[0][0]], part.rows[found[0][1]]
            raise DataError(
                f"{len(found)} {name} frames are also training frames, the first is frame "
                f"{other} of {part.file.path} = frame {one} of {train.file.path}; remove "
                "them, or set data.allow_duplicates=true"
            )


def _has_labels(table: LabelTable, row: int) -> bool:
    return any(labels.has(q) for labels in table.labels[row].values() for q in LABELED)
