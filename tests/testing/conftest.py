"""A backbone with planted faults."""

import pytest
import torch

from gnnforce.backbones.base import BACKBONES, Backbone
from gnnforce.models.force_field import ForceField
from gnnforce.ops.cutoff import cosine_cutoff
from gnnforce.ops.scatter import scatter_sum
from gnnforce.readouts.head import Head


def envelope(x):
    return (1 - x**2) ** 4


class Faulty(Backbone):
    """A sum of Gaussians over neighbors, with one fault at a time."""

    def __init__(self, elements, n_features=4, cutoff=4.0, fault="none"):
        super().__init__(elements, n_features, cutoff)
        self.fault = fault
        self.widths = torch.nn.Parameter(torch.linspace(0.2, 1.0, n_features))
        self.calls = 0

    def forward(self, graph, vectors):
        lengths = vectors.norm(dim=1, keepdim=True)
        values = torch.exp(-self.widths * lengths) * envelope(lengths / self.cutoff)
        values = self._break(values, graph, vectors, lengths)
        features = scatter_sum(values, graph.edge_index[1], graph.n_atoms)
        if self.fault == "batch mean":
            features = features - features.mean(dim=0)
        if self.fault == "absolute position":
            features = features + 1e-3 * graph.positions[:, :1].to(features)
        if self.fault == "atom number":
            features = features * torch.arange(1, 1 + graph.n_atoms)[:, None]
        if self.fault == "reads cell":
            size = graph.cell.diagonal(dim1=1, dim2=2).sum(dim=1)[graph.graph_index]
            features = features * (1 + 1e-3 * size[:, None]).to(features)
        if self.fault == "remembers":
            self.calls += 1
            features = features * (1 + 1e-3 * self.calls)
        if self.fault == "lone atom":
            degree = graph.edge_index[1].bincount(minlength=graph.n_atoms)
            features = features + 0.1 * (degree[:, None] == 0) * self._rank(graph)
        return features

    def _rank(self, graph):
        return torch.arange(graph.n_atoms)[:, None] / graph.n_atoms

    def _break(self, values, graph, vectors, lengths):
        decay = torch.exp(-self.widths * lengths)
        broken = {
            "cosine": lambda: decay * cosine_cutoff(lengths, self.cutoff),
            "no envelope": lambda: decay,
            "direction": lambda: values * (1 + 0.1 * vectors[:, :1]),
            "handed": lambda: values + self._chirality(graph, vectors, lengths),
            "forgotten": lambda: (
                torch.exp(-lengths) * envelope(lengths / self.cutoff)
                + self.widths * lengths.detach()
            ),
            "detached": lambda: values * (1 + lengths.detach() ** 2),
            "few neighbors": lambda: (
                values * (torch.arange(graph.n_edges)[:, None] % 7 > 0)
            ),
            "periodic images": lambda: (
                values * (graph.edge_shifts == 0).all(dim=1, keepdim=True)
            ),
        }
        return broken.get(self.fault, lambda: values)()

    def _chirality(self, graph, vectors, lengths):
        weight = envelope(lengths / self.cutoff)
        target = graph.edge_index[1]
        sums = [
            scatter_sum(weight * vectors * lengths**power, target, graph.n_atoms)
            for power in (0, 1, 2)
        ]
        triple = (sums[0] * torch.linalg.cross(sums[1], sums[2])).sum(dim=1, keepdim=True)
        return weight * triple[target]


def make(fault, hidden=(32,)):
    torch.manual_seed(0)
    backbone = Faulty([1, 8], fault=fault)
    return ForceField(backbone, [Head("e", members=2, hidden=hidden)]).to(torch.float64)


@pytest.fixture(autouse=True, scope="session")
def _unregister():
    yield
    BACKBONES.pop("Faulty", None)


@pytest.fixture
def faulty():
    return make
