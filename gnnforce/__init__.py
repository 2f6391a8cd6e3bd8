"""Many force fields for about the price of one.

One message-passing backbone, many readouts, and the conservative forces and stress of
all of them.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gnnforce.backbones.base import Backbone
from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.api import gradients
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.checkpoint import load
from gnnforce.models.force_field import ForceField
from gnnforce.models.predictions import Predictions
from gnnforce.readouts.head import Head

if TYPE_CHECKING:
    from gnnforce.calculators.ase import Calculator

__version__ = version("gnnforce")

__all__ = [
    "AtomGraph",
    "Backbone",
    "Calculator",
    "ForceField",
    "Head",
    "PaiNN",
    "Predictions",
    "SchNet",
    "batch",
    "gradients",
    "load",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import the calculator only when it is used: it needs ASE, models do not."""
    if name == "Calculator":
        from gnnforce.calculators.ase import Calculator  # noqa: PLC0415

        return Calculator
    raise AttributeError(f"module 'gnnforce' has no attribute {name!r}")
