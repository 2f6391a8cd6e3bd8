"""Steps of ``gnnforce predict``: checks, evaluation in batches, the written file."""

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from gnnforce.datasets.keys import check_writable
from gnnforce.errors import (
    DataError,
    GeometryError,
    StressError,
    UnknownElementError,
    UserError,
)
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.convert import total_charge
from gnnforce.models.force_field import ForceField
from gnnforce.nn.embedding import element_name

_SUFFIXES = (".xyz", ".extxyz")


def check_output(output: Path, data: Path) -> None:
    """Check that the file can be written and is not the input.

    Raises:
        UserError: For another file type, a folder that is missing, or the input itself.
    """
    if output.suffix not in _SUFFIXES:
        raise UserError(
            f"predictions are written as extended XYZ; name the output *.xyz, not {output}"
        )
    if not output.parent.is_dir():
        raise UserError(f"cannot write {output}: there is no folder {output.parent}")
    if output.exists() and data.exists() and output.samefile(data):
        raise UserError(f"{output} is the input; name another file to write")


def written_keys(
    model: ForceField, heads: Sequence[str], wanted: Sequence[str]
) -> dict[str, list[str]]:
    """Return the keys a prediction writes.

    Args:
        model: The model.
        heads: Names of heads.
        wanted: Out of ``energy``, ``forces`` and ``stress``.

    Returns:
        ``{"info": [...], "arrays": [...]}``.
    """
    keys: dict[str, list[str]] = {"info": [], "arrays": []}
    for name in heads:
        tails = ["", "_std"] if model.outputs.head(name).members > 1 else [""]
        for quantity in wanted:
            place = "arrays" if quantity == "forces" else "info"
            keys[place] += [f"{name}_{quantity}{tail}" for tail in tails]
    return keys


def check_frames(
    frames: Sequence[Atoms],
    model: ForceField,
    heads: Sequence[str],
    *,
    stress: bool,
    overwrite: bool,
) -> None:
    """Check everything that can go wrong before anything is computed.

    Args:
        frames: The structures.
        model: The model.
        heads: Names of heads.
        stress: Whether stress is wanted.
        overwrite: Whether predictions that are there may be replaced.

    Raises:
        UserError: Names the frame: an element the model does not know, a stress that
            does not exist, keys that are taken.
    """
    quantities = ["energy", "forces", *["stress"] * stress]
    by_place = written_keys(model, heads, quantities)
    keys = [key for keys in by_place.values() for key in keys]
    for key in keys:
        check_writable(key)
    known = ", ".join(element_name(number) for number in model.elements)
    for number, atoms in enumerate(frames):
        unknown = sorted(set(atoms.numbers.tolist()) - set(model.elements))
        if unknown:
            names = ", ".join(element_name(z) for z in unknown)
            raise UnknownElementError(
                f"frame {number} holds {names}; the model has learned {known}"
            )
        if stress and not (atoms.pbc.any() and atoms.cell.volume > 0):
            raise StressError(
                f"frame {number} has no stress: pbc is {atoms.pbc.tolist()} and the cell "
                f"has a volume of {atoms.cell.volume:g} Å³; leave out --stress"
            )
        taken = [key for key in keys if key in _keys_of(atoms)]
        if taken and not overwrite:
            raise DataError(
                f"frame {number} has {', '.join(taken)} already; --overwrite replaces it"
            )


def predict_frames(
    model: ForceField,
    frames: Sequence[Atoms],
    heads: Sequence[str],
    wanted: Sequence[str],
    *,
    batch_size: int,
) -> Iterator[tuple[int, float | None]]:
    """Add predictions to the frames, a batch at a time.

    Args:
        model: The model.
        frames: The structures; ``info`` and ``arrays`` are added to.
        heads: Names of heads.
        wanted: Quantities.
        batch_size: Structures at a time.

    Yields:
        Frames done so far, and the largest force uncertainty of the batch if known.

    Raises:
        UserError: Names the frame that is no structure, or whose prediction is not
            finite.
    """
    _warn_of_charges(frames, model)
    for start in range(0, len(frames), batch_size):
        chunk = frames[start : start + batch_size]
        graphs = [_graph(atoms, model, start + i) for i, atoms in enumerate(chunk)]
        joined = batch(graphs).to(model.device)
        predictions = model.predict(joined, wanted, heads=list(heads))
        largest = None
        for name in heads:
            members = predictions.outputs.head(name).members
            of_head = predictions.head(name)
            for quantity in wanted:
                values = {quantity: of_head.mean(quantity)}
                if members > 1:
                    values[f"{quantity}_std"] = of_head.std(quantity)
                for key, value in values.items():
                    array = value.double().cpu().numpy()
                    _store(chunk, f"{name}_{key}", array, start)
                    if key == "forces_std":
                        largest = max(largest or 0.0, float(array.max(initial=0.0)))
        yield start + len(chunk), largest


def write_frames(frames: Sequence[Atoms], output: Path) -> None:
    """Write extended XYZ, the whole file or nothing.

    Raises:
        DataError: For a frame that extended XYZ cannot hold.
    """
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=output.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            for number, atoms in enumerate(frames):
                write(stream, _once(atoms, number), format="extxyz")
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(output)
    finally:
        Path(name).unlink(missing_ok=True)


def _keys_of(atoms: Atoms) -> set[str]:
    results = {} if atoms.calc is None else atoms.calc.results
    return {*atoms.info, *atoms.arrays, *results}


def _graph(atoms: Atoms, model: ForceField, number: int) -> AtomGraph:
    try:
        graph = AtomGraph.from_atoms(atoms, model.cutoff)
    except GeometryError as error:
        raise GeometryError(f"frame {number}: {error}") from error
    return graph


def _store(chunk: Sequence[Atoms], key: str, values: np.ndarray, start: int) -> None:
    """Put values of a batch into its frames: atoms one after another, or one a frame."""
    first = 0
    per_atom = key.endswith(("_forces", "_forces_std"))
    for number, atoms in enumerate(chunk):
        own = values[first : first + len(atoms)] if per_atom else values[number]
        first += len(atoms)
        if not np.isfinite(own).all():
            raise DataError(
                f"frame {start + number}: {key} is not finite; the structure lies far "
                "outside what the model knows"
            )
        if per_atom:
            atoms.arrays[key] = np.array(own)
        else:
            atoms.info[key] = float(own) if own.ndim == 0 else np.array(own)


def _once(atoms: Atoms, number: int) -> Atoms:
    """Return a copy in which no label is both in the calculator and in info or arrays."""
    copy: Atoms = atoms.copy()
    if atoms.calc is None:
        return copy
    kept = {}
    for key, value in atoms.calc.results.items():
        other = copy.info.get(key, copy.arrays.get(key))
        if other is None:
            kept[key] = value
        elif not np.array_equal(np.ravel(other), np.ravel(value)):
            raise DataError(f"frame {number} holds two different values of {key!r}")
    copy.calc = SinglePointCalculator(copy)
    copy.calc.results = kept
    return copy


def _warn_of_charges(frames: Sequence[Atoms], model: ForceField) -> None:
    charged = [i for i, atoms in enumerate(frames) if total_charge(atoms) != 0]
    if charged and "charge" not in model.backbone.conditioned_on:
        warnings.warn(
            f"{len(charged)} frames (the first is {charged[0]}) have a charge, which this "
            "model does not read: it answers as for the charge of its training data",
            stacklevel=2,
        )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
