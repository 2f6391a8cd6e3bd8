"""Configuration to model."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from gnnforce.backbones.base import BACKBONES, Backbone
from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.datasets.elements import atomic_number
from gnnforce.errors import ConfigError, did_you_mean
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.training.config import TrainingConfig

SHIPPED = (PaiNN, SchNet)


def build_model(config: TrainingConfig, elements: Sequence[int]) -> ForceField:
    """Make the model of a run with the start that its seed gives.

    Args:
        config: The run.
        elements: Atomic numbers of the training frames.

    Returns:
        The model, in the dtype to train in. The random state of torch is not changed.

    Raises:
        ConfigError: For a backbone or an element that does not exist.
        UserError: For checkpointing of a backbone that cannot.
    """
    options = config.model
    backbone: Any = find_backbone(options.backbone)
    extra = [atomic_number(symbol) for symbol in options.elements]
    arguments = {
        "elements": sorted({*map(int, elements), *extra}),
        "n_features": options.n_features,
        "n_layers": options.n_layers,
        "cutoff": options.cutoff,
        "n_radial": options.n_radial,
    }
    accepted = inspect.signature(backbone).parameters
    heads = [
        Head(name, members=head.members, kind=head.kind, hidden=head.hidden)
        for name, head in options.heads.items()
    ]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # and no device's
        model = ForceField(
            backbone(**{k: v for k, v in arguments.items() if k in accepted}),
            heads,
            repulsion=options.repulsion,
        )
    model.backbone.checkpointing = config.training.checkpointing
    return model.to(getattr(torch, config.training.dtype))


def find_backbone(name: str) -> type[Backbone]:
    """Return a backbone by its name, in upper or lower case.

    Raises:
        ConfigError: Lists the names.

    Example:
        >>> find_backbone("painn").__name__
        'PaiNN'
    """
    known = {word.lower(): backbone for word, backbone in BACKBONES.items()}
    if name.lower() not in known:
        names = [backbone.__name__ for backbone in SHIPPED]
        raise ConfigError(
            f"model.backbone: there is no {name!r}, but {', '.join(names)}."
            + did_you_mean(name, known)
        )
    return known[name.lower()]
