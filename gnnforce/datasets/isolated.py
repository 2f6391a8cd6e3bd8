"""One-atom frames whose energy is the energy of an isolated atom."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from ase import Atoms

from gnnforce.datasets.elements import symbol
from gnnforce.datasets.labels import LabelTable
from gnnforce.errors import DataError, GeometryError
from gnnforce.graph.convert import total_charge

ALONE = 10.0  # Angstrom between periodic images of one atom
AGREEMENT = 1e-4  # eV between frames of one element
MARKS = ("isolatedatom", "isolated_atom", "isolated atom")


@dataclass
class AtomEnergies:
    """Energies of isolated atoms of one head.

    Attributes:
        energies: In eV by atomic number.
        rows: Frames that gave or confirmed them.
    """

    energies: dict[int, float] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)


def isolated_energies(
    frames: Sequence[Atoms], table: LabelTable, head: str, *, all_alone: bool = False
) -> AtomEnergies:
    """Collect the energies of isolated atoms.

    Args:
        frames: Frames of any kind.
        table: Their labels.
        head: Name of the head.
        all_alone: Every frame is meant as an isolated atom.

    Returns:
        Energies and the frames they come from.

    Raises:
        DataError: For frames of one element that differ, or a frame that is meant as an
            isolated atom but has several.
    """
    found: dict[int, list[tuple[int, float, bool]]] = {}
    for row, atoms in enumerate(frames):
        marked = is_marked(atoms) or all_alone
        if marked and len(atoms) != 1:
            raise DataError(
                f"frame {row} is meant as an isolated atom, but has {len(atoms)} atoms"
            )
        energy = table.labels[row][head].energy
        if energy is not None and is_isolated(atoms, marked=marked):
            number = int(atoms.numbers[0])
            found.setdefault(number, []).append((row, energy, marked))
    result = AtomEnergies()
    for number, entries in sorted(found.items()):
        best = [entry for entry in entries if entry[2]] or entries
        first = best[0]
        for row, energy, _ in best:
            if abs(energy - first[1]) > AGREEMENT:
                raise DataError(
                    f"isolated {symbol(number)} of head {head!r} has {first[1]:.8g} eV in "
                    f"frame {first[0]} and {energy:.8g} eV in frame {row}; mark the right "
                    "one with config_type=IsolatedAtom, or give the references"
                )
        result.energies[number] = first[1]
        result.rows += [row for row, _, _ in best]
    result.rows.sort()
    return result


def is_marked(atoms: Atoms) -> bool:
    """Tell whether a frame calls itself an isolated atom."""
    return str(atoms.info.get("config_type", "")).strip().lower() in MARKS


def is_isolated(atoms: Atoms, *, marked: bool = False) -> bool:
    """Tell whether a frame is a neutral atom far from its images.

    Args:
        atoms: The frame.
        marked: The frame says so, whatever its cell; a charge still counts.
    """
    if len(atoms) != 1:
        return False
    try:
        if total_charge(atoms) != 0:
            return False
    except GeometryError:
        return False
    lengths = np.linalg.norm(atoms.cell.array, axis=1)[atoms.pbc]
    return marked or bool((lengths >= ALONE).all())
