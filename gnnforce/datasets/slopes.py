"""Do the forces fit the slope of the energy? Finds wrong units and signs."""

from collections.abc import Iterator, Sequence

import numpy as np
from ase import Atoms

from gnnforce.datasets.values import Floats
from gnnforce.graph.convert import CHARGE_KEYS, SPIN_KEYS

CLOSE = 0.1  # Angstrom: no atom moves more between two close frames
FACTOR = 5.0
MOST_FRAMES = 200  # of one composition, compared with each other

Sample = tuple[int, Atoms, float, Floats]  # frame number, frame, energy, forces


def slope_remark(samples: Sequence[Sample]) -> str | None:
    r"""Compare energy differences of close frames with the work of their forces.

    .. math:: E_b - E_a \approx -\tfrac12 (F_a + F_b) \cdot (R_b - R_a)

    Args:
        samples: Frames of one head with energy (eV) and forces of all atoms (eV/Ang).

    Returns:
        A sentence when energies and forces differ by a factor over five or in sign;
        None when they fit or no two frames are close.

    Example:
        >>> def h2(length, energy, force):
        ...     atoms = Atoms("H2", [[0, 0, 0], [0, 0, length]])
        ...     return 0, atoms, energy, np.array([[0, 0, force], [0, 0, -force]])
        >>> slope_remark([h2(0.74, -1.0, -0.5), h2(0.80, -0.97, -0.5)])[:24]
        'the energy changes -1 ti'
    """
    pairs = [pair for group in _groups(samples).values() for pair in _close_pairs(group)]
    if not pairs:
        return None
    energies = np.array([pair[2] for pair in pairs])
    works = np.array([pair[3] for pair in pairs])
    power = float(works @ works)
    if power == 0.0:
        return None
    ratio = float(energies @ works) / power
    if 1 / FACTOR <= ratio <= FACTOR:
        return None
    first, second = pairs[int(np.abs(works).argmax())][:2]
    return (
        f"the energy changes {ratio:.3g} times as much as the forces say, between "
        f"{len(pairs)} pair(s) of close frames such as {first} and {second}: check "
        "energy_unit, length_unit and the sign of the forces"
    )


def _groups(samples: Sequence[Sample]) -> dict[tuple[object, ...], list[Sample]]:
    """Collect frames that differ in positions only."""
    groups: dict[tuple[object, ...], list[Sample]] = {}
    for sample in samples:
        atoms = sample[1]
        state = [str(atoms.info.get(key)) for key in (*CHARGE_KEYS, *SPIN_KEYS)]
        cell = atoms.cell.array.tobytes() if atoms.pbc.any() else b""
        key = (atoms.numbers.tobytes(), cell, atoms.pbc.tobytes(), *state)
        group = groups.setdefault(key, [])
        if len(group) < MOST_FRAMES:
            group.append(sample)
    return groups


def _close_pairs(group: Sequence[Sample]) -> Iterator[tuple[int, int, float, float]]:
    """Yield frame numbers, energy difference and work of every close pair."""
    positions = np.array([sample[1].positions for sample in group])
    energies = np.array([sample[2] for sample in group])
    forces = np.array([sample[3] for sample in group])
    for i in range(len(group) - 1):
        moves = positions[i + 1 :] - positions[i]
        largest = np.sqrt((moves**2).sum(axis=2)).max(axis=1)
        for k in np.flatnonzero((largest <= CLOSE) & (largest > 0)):
            j = i + 1 + int(k)
            work = -0.5 * float(((forces[i] + forces[j]) * moves[k]).sum())
            yield group[i][0], group[j][0], float(energies[j] - energies[i]), work
