"""What the checks of a calculator look at."""

from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.calculators.calculator import BaseCalculator
from numpy.typing import NDArray


@dataclass(frozen=True)
class Subject:
    """A calculator and the structures it is checked with.

    Attributes:
        calc: The calculator.
        molecule: An open structure.
        solid: A structure with three periodic directions.
        tolerance: Of energies in eV, forces in eV/Angstrom and stress in
            eV/Angstrom^3, relative to the largest value where that is above one.
        extensive: Whether energies of repeated parts add up.
    """

    calc: BaseCalculator
    molecule: Atoms
    solid: Atoms
    tolerance: float
    extensive: bool

    @property
    def has_stress(self) -> bool:
        """Whether the calculator declares a stress."""
        return "stress" in self.calc.implemented_properties

    def structures(self) -> tuple[Atoms, Atoms]:
        """Return fresh copies of both structures with the calculator attached."""
        return self.attached(self.molecule), self.attached(self.solid)

    def attached(self, atoms: Atoms) -> Atoms:
        """Return a copy of a structure with the calculator attached."""
        copied: Atoms = atoms.copy()
        copied.calc = self.calc
        return copied

    def energy(self, atoms: Atoms) -> float:
        """Return the energy of a structure."""
        return float(self.attached(atoms).get_potential_energy())

    def forces(self, atoms: Atoms) -> NDArray[np.float64]:
        """Return the forces on a structure, constraints left out."""
        return np.array(
            self.attached(atoms).get_forces(apply_constraint=False), np.float64
        )
