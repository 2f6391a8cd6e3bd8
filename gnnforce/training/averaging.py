"""The running mean of the weights that is validated and saved."""

import torch
from torch import nn


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    r"""Move a running mean of the parameters towards those of a model, in place.

    .. math:: \bar\theta \leftarrow d\,\bar\theta + (1 - d)\,\theta, \qquad
              d = \min(d_\mathrm{max}, \tfrac{1 + s}{10 + s})

    so that the random start is forgotten quickly.

    Args:
        average: Holds the mean; a copy of the model at the start.
        model: The model that is trained.
        decay: Largest decay.
        step: Number ``s`` of updates before this one.
    """
    now = min(decay, (1 + step) / (10 + step))
    means: list[torch.Tensor] = list(average.parameters())
    values: list[torch.Tensor] = list(model.parameters())
    torch._foreach_lerp_(means, values, 1 - now)
