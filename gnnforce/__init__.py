"""Many force fields for about the price of one.

One message-passing backbone, many readouts, and the conservative forces and stress of
all of them. The public names are imported when they are first used, so that the command
line answers ``--help`` without loading PyTorch.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnnforce.backbones.base import Backbone
    from gnnforce.backbones.painn import PaiNN
    from gnnforce.backbones.schnet import SchNet
    from gnnforce.calculators.ase import Calculator
    from gnnforce.derivatives.api import gradients
    from gnnforce.derivatives.parameters import parameter_gradients
    from gnnforce.derivatives.penalties import gradient_penalty
    from gnnforce.derivatives.tasks import backward_tasks, task_gradients
    from gnnforce.graph.atom_graph import AtomGraph
    from gnnforce.graph.batch import batch
    from gnnforce.models.calibration import calibrate
    from gnnforce.models.checkpoint import load
    from gnnforce.models.combinations import deviation_of, difference_of, mean_of
    from gnnforce.models.elastic import elastic_constants
    from gnnforce.models.force_field import ForceField
    from gnnforce.models.parameters import parameter_jacobian
    from gnnforce.models.predictions import Predictions
    from gnnforce.models.second_order import hessian, hessian_vector_product
    from gnnforce.models.smoothness import slope_penalty
    from gnnforce.readouts.head import Head
    from gnnforce.training.clipping import clip_gradient_groups

__version__ = metadata.version("gnnforce")

_HOMES = {
    "AtomGraph": "graph.atom_graph",
    "Backbone": "backbones.base",
    "Calculator": "calculators.ase",
    "ForceField": "models.force_field",
    "Head": "readouts.head",
    "PaiNN": "backbones.painn",
    "Predictions": "models.predictions",
    "SchNet": "backbones.schnet",
    "backward_tasks": "derivatives.tasks",
    "batch": "graph.batch",
    "calibrate": "models.calibration",
    "clip_gradient_groups": "training.clipping",
    "deviation_of": "models.combinations",
    "difference_of": "models.combinations",
    "elastic_constants": "models.elastic",
    "gradient_penalty": "derivatives.penalties",
    "gradients": "derivatives.api",
    "hessian": "models.second_order",
    "hessian_vector_product": "models.second_order",
    "load": "models.checkpoint",
    "mean_of": "models.combinations",
    "parameter_gradients": "derivatives.parameters",
    "parameter_jacobian": "models.parameters",
    "slope_penalty": "models.smoothness",
    "task_gradients": "derivatives.tasks",
}

__all__ = [
    "AtomGraph",
    "Backbone",
    "Calculator",
    "ForceField",
    "Head",
    "PaiNN",
    "Predictions",
    "SchNet",
    "backward_tasks",
    "batch",
    "calibrate",
    "clip_gradient_groups",
    "deviation_of",
    "difference_of",
    "elastic_constants",
    "gradient_penalty",
    "gradients",
    "hessian",
    "hessian_vector_product",
    "load",
    "mean_of",
    "parameter_gradients",
    "parameter_jacobian",
    "slope_penalty",
    "task_gradients",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'gnnforce' has no attribute {name!r}")
    value = getattr(import_module(f"gnnforce.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
