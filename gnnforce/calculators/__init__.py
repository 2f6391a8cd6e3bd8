"""Force fields inside other programs' engines."""

from gnnforce.calculators.ase import Calculator

__all__ = ["Calculator"]
