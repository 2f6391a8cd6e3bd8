"""Frames that are the same structure."""

import hashlib
from collections.abc import Sequence

import numpy as np
from ase import Atoms

from gnnforce.datasets.labels import LabelTable
from gnnforce.errors import GeometryError
from gnnforce.graph.convert import CHARGE_KEYS, SPIN_KEYS, spin_multiplicity, total_charge

DECIMALS = 6  # of positions and cell in Angstrom


def structure_key(atoms: Atoms) -> bytes:
    """Return bytes that are equal for equal structures; labels play no role.

    Elements in their order, positions and cell to 1e-6 Angstrom, periodicity, charge
    and spin count.
    """
    numbers = np.asarray(atoms.numbers, dtype="<i8").tobytes()
    pbc = np.asarray(atoms.pbc, dtype=bool).tobytes()
    rounded = [
        (np.round(np.asarray(values, dtype="<f8"), DECIMALS) + 0.0).tobytes()
        for values in (atoms.positions, atoms.cell.array)
    ]
    return b"|".join([numbers, pbc, *rounded, _state(atoms)])


def structure_hash(frames: Sequence[Atoms]) -> str:
    """Return a short hash of all structures in their order, the same on every machine."""
    digest = hashlib.sha256()
    for atoms in frames:
        digest.update(hashlib.sha256(structure_key(atoms)).digest())
    return digest.hexdigest()[:32]


def label_hash(table: LabelTable) -> str:
    """Return a short hash of all labels and weights of frames, heads in their order."""
    digest = hashlib.sha256(np.asarray(table.weights, dtype="<f8").tobytes())
    for frame in table.labels:
        for head in table.heads:
            one = frame[head]
            parts = (one.energy, one.forces, one.forces_mask, one.stress)
            for part in parts:
                known = part is not None
                digest.update(bytes([known]))
                if known:
                    digest.update(np.asarray(part, dtype="<f8").tobytes())
    return digest.hexdigest()[:32]


def duplicate_frames(
    frames: Sequence[Atoms], others: Sequence[Atoms]
) -> list[tuple[int, int]]:
    """Return the pairs of frames in two sets that are the same structure.

    Args:
        frames: One set.
        others: Another set.

    Returns:
        ``(row in frames, row in others)`` for every frame of ``others`` that is in
        ``frames``.

    Example:
        >>> here, far = Atoms("H", [[0, 0, 0]]), Atoms("H", [[0, 0, 9]])
        >>> duplicate_frames([here, far], [far])
        [(1, 0)]
    """
    rows: dict[bytes, int] = {}
    for row, atoms in enumerate(frames):
        rows.setdefault(structure_key(atoms), row)
    keys = [structure_key(atoms) for atoms in others]
    return [(rows[key], row) for row, key in enumerate(keys) if key in rows]


def _state(atoms: Atoms) -> bytes:
    """Return charge and spin; one spelling for all, or the text of what is no number."""
    try:
        return repr((total_charge(atoms), spin_multiplicity(atoms))).encode()
    except GeometryError:
        return repr(
            [str(atoms.info.get(key)) for key in (*CHARGE_KEYS, *SPIN_KEYS)]
        ).encode()
