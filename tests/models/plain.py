"""A backbone of somebody else: plain PyTorch operations, none of this package's."""

import torch
from torch import nn

from gnnforce.backbones.base import Backbone


class PlainTorch(Backbone):
    """Messages by indexing, sums by ``index_add``, a basis by ``exp`` and ``stack``."""

    def __init__(self, elements, n_features=8, n_layers=2, cutoff=5.0):
        super().__init__(elements, n_features, cutoff)
        self.table = nn.Embedding(max(elements) + 1, n_features)
        self.filters = nn.ModuleList(
            nn.Linear(4, n_features, bias=False) for _ in range(n_layers)
        )
        self.mixing = nn.ModuleList(
            nn.Linear(n_features, n_features) for _ in range(n_layers)
        )

    def forward(self, graph, vectors):
        source, target = graph.edge_index
        r = (vectors**2).sum(dim=1).sqrt()
        fade = (1 - (r / self.cutoff).clamp(max=1) ** 2) ** 3
        basis = torch.stack([torch.exp(-((r - mu) ** 2)) for mu in range(4)], dim=1)
        x = self.table(graph.numbers)
        for filters, mixing in zip(self.filters, self.mixing, strict=True):
            messages = x[source] * filters(basis * fade[:, None])
            along = messages[:, None, :] * (vectors / r[:, None])[:, :, None]
            scalars = torch.zeros_like(x).index_add(0, target, messages)
            turned = torch.zeros(x.shape[0], 3, x.shape[1], dtype=x.dtype)
            turned = turned.index_add(0, target, along)
            x = x + torch.tanh(mixing(scalars)) + 0.1 * (turned**2).sum(dim=1)
        return x

    def arguments(self):
        return {**super().arguments(), "n_layers": len(self.filters)}
