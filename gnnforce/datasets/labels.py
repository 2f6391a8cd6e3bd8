"""Labels of all frames and heads, with an account of what was found."""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from gnnforce.datasets.choices import choose_keys
from gnnforce.datasets.frame_labels import Labels, Rules, read_labels
from gnnforce.datasets.keys import LabelSpec
from gnnforce.datasets.slopes import slope_remark
from gnnforce.datasets.values import Floats, as_floats
from gnnforce.errors import DataError, did_you_mean
from gnnforce.graph.convert import CHARGE_KEYS, SPIN_KEYS
from gnnforce.quantities import QUANTITIES

__all__ = ["FORCES_LIMIT", "LabelSpec", "LabelTable", "Labels", "extract_labels"]

FORCES_LIMIT = 1000.0  # eV/Angstrom; no frame worth training on is beyond
WEIGHT_KEYS = ("config_weight", "frame_weight", "weight")
COUNTED = ("energy", "forces", "stress")


@dataclass
class LabelTable:
    """Labels of frames by head.

    Attributes:
        specs: Heads, keys and units as asked.
        labels: Per frame, labels by head.
        keys_used: Per head, the key of every quantity that was found.
        weights: Weight of every frame, shape ``(n_frames,)``.
        weight_key: Where the weights come from, None when all are 1.
        dropped: Frames whose labels were refused and left out, and why.
        carried: Which frames state a total charge or a spin multiplicity.
        warnings: Sentences that people should read.
    """

    specs: tuple[LabelSpec, ...]
    labels: list[dict[str, Labels]]
    keys_used: dict[str, dict[str, str]]
    weights: Floats
    weight_key: str | None = None
    dropped: dict[int, str] = field(default_factory=dict)
    carried: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def heads(self) -> list[str]:
        """Names of the heads, in the order asked."""
        return [spec.head for spec in self.specs]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Number of frames with a label, by head and quantity."""
        return {
            head: {
                quantity: sum(frame[head].has(quantity) for frame in self.labels)
                for quantity in COUNTED
            }
            for head in self.heads
        }

    @property
    def units(self) -> dict[str, dict[str, str]]:
        """Units that the labels had in the file, by head."""
        return {
            spec.head: {"energy": spec.energy_unit, "length": spec.length_unit}
            for spec in self.specs
        }

    @property
    def largest_force(self) -> tuple[float, int] | None:
        """Largest force in eV/Angstrom and its frame; None without forces."""
        best: tuple[float, int] | None = None
        for number, frame in enumerate(self.labels):
            for labels in frame.values():
                if labels.forces is not None:
                    norm = float(np.sqrt((labels.forces**2).sum(axis=1)).max())
                    if best is None or norm > best[0]:
                        best = (norm, number)
        return best

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.labels)

    def _describe(self, spec: LabelSpec) -> str:
        parts = []
        for quantity, count in self.counts[spec.head].items():
            names = ("stress", "virial") if quantity == "stress" else (quantity,)
            used = self.keys_used[spec.head]
            source = " and ".join(repr(used[name]) for name in names if name in used)
            found = f"{quantity} in {count} of {len(self)} frames (from {source})"
            parts.append(found if source else f"no {quantity}")
        units = f"units {spec.energy_unit} and {spec.length_unit}"
        return f"head {spec.head!r}: {', '.join(parts)}; {units}"

    def subset(self, indices: Sequence[int]) -> "LabelTable":
        """Return the table of some frames, numbered anew."""
        kept = [int(index) for index in indices]
        return replace(
            self,
            labels=[self.labels[index] for index in kept],
            weights=self.weights[np.array(kept, dtype=np.int64)],
            carried={name: has[kept] for name, has in self.carried.items()},
            dropped={n: self.dropped[i] for n, i in enumerate(kept) if i in self.dropped},
        )

    def summary(self) -> list[str]:
        """Say in lines for people what was read."""
        lines = [f"{len(self)} {'frame' if len(self) == 1 else 'frames'} read"]
        lines += [self._describe(spec) for spec in self.specs]
        if self.largest_force is not None:
            lines.append(
                "largest force {:.4g} eV/Ang in frame {}".format(*self.largest_force)
            )
        for name, has in self.carried.items():
            if has.any():
                lines.append(f"{name} given in {has.sum()} of {len(self)} frames")
        if self.weight_key is not None:
            low, high = self.weights.min(), self.weights.max()
            lines.append(f"frame weights from {self.weight_key!r}: {low:g} to {high:g}")
        if self.dropped:
            reasons = "; ".join(f"frame {n}: {why}" for n, why in self.dropped.items())
            lines.append(f"dropped {len(self.dropped)} frames ({reasons})")
        return lines + [f"warning: {text}" for text in self.warnings]


def extract_labels(
    frames: Sequence[Atoms],
    specs: Sequence[LabelSpec],
    *,
    require: Collection[str] = ("energy",),
    forces_limit: float | None = None,
    on_bad: Literal["error", "drop"] = "error",
    allow_nan: Collection[str] = (),
    weight_key: str | None = None,
) -> LabelTable:
    """Read the labels of all frames and heads; the frames are not changed.

    Energy, forces and stress are read wherever they are found; constraints are not
    applied. What a frame does not have is None. Stress comes from ``stress`` or from
    ``virial = -volume * stress``; zeros in a frame that can have none count as absent.

    Args:
        frames: The structures.
        specs: Keys and units, one spec a head.
        require: Quantities that must be found, see ``choose_keys``.
        forces_limit: Largest force in eV/Angstrom, 1000 when None, ``inf`` for any.
        on_bad: What to do with frames whose labels cannot be used (nan, infinite,
            beyond the limit, wrong shape, ...): ``"error"``, or ``"drop"`` their labels
            and report them.
        allow_nan: Quantities in which nan means "not known": an energy, a stress, or
            the force of an atom.
        weight_key: Key of frame weights in ``info``; by default ``config_weight``,
            ``frame_weight`` and ``weight`` are tried.

    Returns:
        The table.

    Warns:
        UserWarning: When energies and forces contradict each other by a factor over 5.

    Raises:
        DataError: Names frame, head, key and reason.

    Example:
        >>> atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]], info={"REF_energy": "-1.0D+02"})
        >>> table = extract_labels([atoms], [LabelSpec("energy")])
        >>> table.labels[0]["energy"].energy, table.keys_used
        (-100.0, {'energy': {'energy': 'REF_energy'}})
    """
    if len(frames) == 0:
        raise DataError("there are no frames to read labels from")
    rules = _rules(forces_limit, on_bad, allow_nan)
    choices = choose_keys(frames, specs, require)
    key, weights = _weights(frames, weight_key)
    labels, dropped = [], {}
    for number, atoms in enumerate(frames):
        try:
            labels.append(
                {s.head: read_labels(atoms, s, choices.keys, rules) for s in specs}
            )
        except DataError as error:
            if on_bad == "error":
                raise DataError(f"frame {number}: {error}") from error
            dropped[number] = str(error)
            labels.append({spec.head: Labels() for spec in specs})
    used: dict[str, dict[str, str]] = {spec.head: {} for spec in specs}
    for (head, quantity), choice in choices.keys.items():
        used[head][quantity] = choice.text
        if choice.states is not None:
            used[head][quantity] = f"{choice.text}[{choice.state}]"
    table = LabelTable(tuple(specs), labels, used, weights, key, dropped)
    table.carried = _carried(frames)
    table.warnings = choices.remarks
    _check_kept(table)
    _check_slopes(frames, table)
    return table


def _rules(forces_limit: float | None, on_bad: str, allow_nan: Collection[str]) -> Rules:
    if on_bad not in ("error", "drop"):
        raise DataError(f"on_bad is 'error' or 'drop', not {on_bad!r}")
    for name in [allow_nan] if isinstance(allow_nan, str) else allow_nan:
        if name not in QUANTITIES:
            raise DataError(f"allow_nan: {name!r}?" + did_you_mean(name, QUANTITIES))
    limit = FORCES_LIMIT if forces_limit is None else float(forces_limit)
    if not limit > 0:
        raise DataError(f"forces_limit must be a positive number, not {forces_limit}")
    names = [allow_nan] if isinstance(allow_nan, str) else allow_nan
    return Rules(limit, frozenset(names))


def _weights(frames: Sequence[Atoms], key: str | None) -> tuple[str | None, Floats]:
    """Read weights of frames; a frame without one weighs 1."""
    tried = WEIGHT_KEYS if key is None else (key,)
    present = [k for k in tried if any(k in atoms.info for atoms in frames)]
    weights = np.ones(len(frames))
    if not present:
        if key is not None:
            raise DataError(f"no frame has the weight {key!r} in info")
        return None, weights
    for number, atoms in enumerate(frames):
        try:
            value = as_floats(atoms.info.get(present[0], 1.0))
        except DataError as error:
            raise DataError(f"frame {number}: {present[0]!r} {error}") from error
        if value.size != 1 or not np.isfinite(value).all() or value.min() < 0:
            raise DataError(
                f"frame {number}: {present[0]!r} is {value.tolist()}; a weight is one "
                "number that is not negative"
            )
        weights[number] = value.item()
    return present[0], weights


def _carried(frames: Sequence[Atoms]) -> dict[str, NDArray[np.bool_]]:
    keys = {"total charge": CHARGE_KEYS, "spin multiplicity": SPIN_KEYS}
    return {
        name: np.array(
            [any(atoms.info.get(k) is not None for k in tried) for atoms in frames]
        )
        for name, tried in keys.items()
    }


def _check_kept(table: LabelTable) -> None:
    if len(table.dropped) == len(table):
        number, reason = next(iter(table.dropped.items()))
        raise DataError(
            f"all {len(table)} frames were dropped, the first for this: frame {number}: {reason}"
        )


def _check_slopes(frames: Sequence[Atoms], table: LabelTable) -> None:
    for head in table.heads:
        samples = []
        for number, (atoms, frame) in enumerate(zip(frames, table.labels, strict=True)):
            label = frame[head]
            whole = label.forces_mask is not None and label.forces_mask.all()
            if label.energy is not None and label.forces is not None and whole:
                samples.append((number, atoms, label.energy, label.forces))
        remark = slope_remark(samples)
        if remark is not None:
            table.warnings.append(f"head {head!r}: {remark}")
            warnings.warn(table.warnings[-1], stacklevel=3)
