"""Every contract catches a model that breaks its law."""

import pytest
import torch

from gnnforce.backbones.base import BACKBONES, Backbone
from gnnforce.errors import UserError
from gnnforce.models.force_field import ForceField
from gnnforce.ops.cutoff import cosine_cutoff
from gnnforce.ops.scatter import scatter_sum
from gnnforce.readouts.head import Head
from gnnforce.testing.checks import failures
from gnnforce.testing.contracts import CONTRACTS, check_model


class Faulty(Backbone):
    """A sum of Gaussians over neighbors, with one fault at a time."""

    def __init__(self, elements, n_features=4, cutoff=4.0, fault="none"):
        super().__init__(elements, n_features, cutoff)
        self.fault = fault
        self.widths = torch.nn.Parameter(torch.linspace(0.2, 1.0, n_features))
        self.calls = 0

    def forward(self, graph, vectors):
        lengths = vectors.norm(dim=1, keepdim=True)
        values = (
            torch.exp(-self.widths * lengths) * (1 - (lengths / self.cutoff) ** 2) ** 4
        )
        values = self._break(values, graph, vectors, lengths)
        features = scatter_sum(values, graph.edge_index[1], graph.n_atoms)
        if self.fault == "batch mean":
            features = features - features.mean(dim=0)
        if self.fault == "absolute position":
            features = features + 1e-3 * graph.positions[:, :1].to(features)
        if self.fault == "atom number":
            features = features * torch.arange(1, 1 + graph.n_atoms)[:, None]
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
        weight = (1 - (lengths / self.cutoff) ** 2) ** 4
        target = graph.edge_index[1]
        sums = [
            scatter_sum(weight * vectors * lengths**power, target, graph.n_atoms)
            for power in (0, 1, 2)
        ]
        triple = (sums[0] * torch.linalg.cross(sums[1], sums[2])).sum(dim=1, keepdim=True)
        return weight * triple[target]


@pytest.fixture(autouse=True, scope="module")
def _unregister():
    yield
    BACKBONES.pop("Faulty", None)


def make(fault):
    torch.manual_seed(0)
    backbone = Faulty([1, 8], fault=fault)
    return ForceField(backbone, [Head("e", members=2)]).to(torch.float64)


def broken_laws(fault):
    return {check.name for check in check_model(make(fault)) if not check.passed}


def test_sound_model_passes():
    checks = check_model(make("none"))
    assert not failures(checks)
    assert [check.name for check in checks] == list(CONTRACTS)


@pytest.mark.parametrize(
    ("fault", "laws"),
    [
        ("cosine", {"smooth cutoff"}),
        ("no envelope", {"smooth cutoff"}),
        ("direction", {"rotation", "reflection"}),
        ("handed", {"reflection"}),
        ("detached", {"forces are gradients", "stress is a gradient"}),
        ("few neighbors", {"permutation"}),
        ("batch mean", {"batch equals singles", "batch members are independent"}),
        ("absolute position", {"translation", "wrapping", "forces are gradients"}),
        ("atom number", {"permutation", "supercell"}),
        ("periodic images", {"wrapping", "supercell"}),
        ("remembers", {"no trace"}),
        ("lone atom", {"isolated atoms"}),
    ],
)
def test_faults_are_caught(fault, laws):
    found = broken_laws(fault)
    assert laws <= found
    if fault == "handed":
        assert "rotation" not in found


def test_one_contract_by_name():
    assert [c.name for c in check_model(make("none"), ["supercell"])] == ["supercell"]
    with pytest.raises(UserError, match="'supercell'"):
        check_model(make("none"), ["supercel"])


def test_model_is_not_changed():
    model = make("none")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_model(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())
