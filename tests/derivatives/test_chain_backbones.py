"""Backbones on the primitives against the same backbones on PyTorch's own operations."""

import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.chain import chain_pull_back
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.graph.views import edge_vectors
from gnnforce.models.force_field import ForceField
from gnnforce.ops import slots as slots_room
from gnnforce.ops.mode import chained
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import (
    argon_grid,
    copper,
    crystal,
    five_elements,
    skewed_pair,
    water,
)

ELEMENTS = [1, 6, 7, 8, 14, 18, 29]
CUTOFF = 3.5
N_OUTPUTS = 3
STRUCTURES = {
    "molecule": [molecule("CH3CONH2")],
    "crystal": [crystal([6, 8, 14], n_atoms=5)],
    "self-images": [copper(), skewed_pair(), bulk("Cu", "sc", a=1.9)],
    "batch": [water(), Atoms(), five_elements(periodic=True), Atoms("H"), Atoms()],
    "isolated atoms": [Atoms("CHO", [[0, 0, 0], [20, 0, 0], [0, 30, 0]]), Atoms("H")],
    "far atom": [Atoms("OHHC", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0], [0, 0, 40]])],
    "nothing": [Atoms(), Atoms()],
}


def graph_of(name: str) -> AtomGraph:
    return batch([AtomGraph.from_atoms(atoms, CUTOFF) for atoms in STRUCTURES[name]])


def make(kind, n_features=7, n_layers=2, cutoff=CUTOFF):
    """A backbone whose biases are not zero, as they are after initialization."""
    made = kind(
        ELEMENTS, n_features=n_features, n_layers=n_layers, cutoff=cutoff
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def loop(rows, vectors, cotangents, create_graph):
    """One plain pass an output."""
    slopes = [
        torch.autograd.grad(
            rows,
            vectors,
            one,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )[0]
        for one in cotangents
    ]
    return torch.stack(slopes)


def run(backbone, graph, vectors, cotangents, create_graph=False):
    """Features and slopes of edges, plain and by the chain."""
    plain = backbone(graph, vectors)
    expected = loop(plain, vectors, cotangents, create_graph)
    with chained(frozen=not create_graph):
        rows = backbone(graph, vectors)
    found = chain_pull_back(rows, vectors, cotangents, create_graph)
    return (rows, found), (plain, expected)


def close(found, expected, tol=1e-10):
    assert found.shape == expected.shape
    size = max(float(expected.detach().abs().max()) if expected.numel() else 0.0, 1e-2)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=0, atol=tol * size)


def compare(backbone, graph, vectors):
    """Features, slopes, and gradients of a loss on both to all parameters."""
    shape = graph.n_atoms, backbone.n_features
    cotangents = torch.randn(N_OUTPUTS, *shape, dtype=torch.float64)
    for found, expected in zip(*run(backbone, graph, vectors, cotangents), strict=True):
        close(found, expected)
    gradients = []
    for rows, slopes in run(backbone, graph, vectors, cotangents, create_graph=True):
        loss = (slopes**2).sum() + torch.sin(rows).sum()
        parameters = list(backbone.parameters())
        gradients.append(torch.autograd.grad(loss, parameters, materialize_grads=True))
    for found, expected in zip(*gradients, strict=True):
        close(found, expected)


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("n_features", [1, 7, 16])
@pytest.mark.parametrize("n_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_the_chain_is_the_plain_path(kind, n_layers, n_features):
    for name in STRUCTURES:
        backbone = make(kind, n_features, n_layers)
        graph = graph_of(name)
        compare(backbone, graph, edge_vectors(graph).requires_grad_())


@st.composite
def random_graphs(draw):
    """Directed multigraphs with vectors of their own, which no structure need have."""
    n_atoms = draw(st.integers(1, 8))
    n_edges = draw(st.integers(0, 40))
    torch.manual_seed(draw(st.integers(0, 10**6)))
    index = torch.randint(n_atoms, (2, n_edges))
    if draw(st.booleans()):
        index = index[:, torch.argsort(index[1], stable=True)]
    if draw(st.booleans()):
        index[1] = index[1] // 4  # many neighbors for a few
    lengths = 0.6 + (CUTOFF - 0.6) * torch.rand(n_edges, 1, dtype=torch.float64)
    vectors = torch.randn(n_edges, 3, dtype=torch.float64)
    vectors = lengths * torch.nn.functional.normalize(vectors, dim=1)
    numbers = torch.tensor(ELEMENTS)[torch.randint(len(ELEMENTS), (n_atoms,))]
    graph = AtomGraph(numbers=numbers, edge_index=index.contiguous())
    return graph, vectors.requires_grad_()


@settings(max_examples=25, deadline=None)
@given(random_graphs(), st.sampled_from([SchNet, PaiNN]), st.integers(0, 3))
def test_any_graph(case, kind, n_layers):
    graph, vectors = case
    compare(make(kind, 5, n_layers), graph, vectors)


@pytest.mark.parametrize("width", [1, 3, 8, 16])
@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_layout_of_edges_does_not_matter(kind, width, monkeypatch):
    graph, backbone = graph_of("batch"), make(kind)
    monkeypatch.setattr(slots_room, "choose_width", lambda _: (width, False))
    compare(backbone, graph, edge_vectors(graph).requires_grad_())


@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_upper_bound_of_blocks(kind, monkeypatch):
    """As on a device, where the number of blocks is not read."""
    graph, backbone = graph_of("batch"), make(kind)
    monkeypatch.setattr(slots_room, "is_read", lambda _: False)
    compare(backbone, graph, edge_vectors(graph).requires_grad_())


# Of the largest entry: three times what is found with three layers of 16 features, in the
# chain and without it. Symmetry makes PaiNN's vectors vanish in the crystals with
# self-images, where the slope of a vector's length is steep: a gradient of 1 / sqrt(1e-8).
TOLERANCES = {"features": 5e-6, "slopes": 4e-5, "parameters": 1.2e-4}
SYMMETRIC = {**TOLERANCES, "slopes": 3e-4}


@pytest.mark.parametrize("name", ["molecule", "crystal", "self-images", "batch"])
@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_single_precision(kind, name):
    """Rounding of the chain in float32, against float64."""
    graph, exact = graph_of(name), make(kind, 16, 3)
    cotangents = torch.randn(N_OUTPUTS, graph.n_atoms, 16, dtype=torch.float64)
    vectors = edge_vectors(graph).requires_grad_()
    results = []
    for precision in (torch.float64, torch.float32):
        model = make(kind, 16, 3).to(precision)
        model.load_state_dict(exact.state_dict())
        leaf = vectors.detach().to(precision).requires_grad_()
        (rows, slopes), plain = run(model, graph, leaf, cotangents.to(precision), True)
        if precision == torch.float64:
            rows, slopes = plain
        loss = (slopes**2).sum() + (rows**2).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([one.flatten() for one in gradients])
        results.append({"features": rows, "slopes": slopes, "parameters": flat})
        assert {one.dtype for one in results[-1].values()} == {precision}
    tolerances = SYMMETRIC if name == "self-images" else TOLERANCES
    for what, tolerance in tolerances.items():
        close(results[1][what].double(), results[0][what], tolerance)


class Largest(TorchDispatchMode):
    """Notes the size of the largest storage that an operation returns."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor) and one.layout == torch.strided:
                size = one.untyped_storage().nbytes() // one.element_size()
                self.numel = max(self.numel, size)
        return result


@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_no_tensor_of_outputs_edges_and_features(kind):
    n_outputs, n_features = 24, 32
    graph = AtomGraph.from_atoms(argon_grid(4, 1.6), CUTOFF)
    backbone = make(kind, n_features, 2)
    vectors = edge_vectors(graph).requires_grad_()
    cotangents = torch.randn(n_outputs, graph.n_atoms, n_features, dtype=torch.float64)
    sizes = []
    for strategy in ("chain", "batched"):
        with Largest() as largest:
            if strategy == "chain":
                with chained(frozen=True):
                    rows = backbone(graph, vectors)
                chain_pull_back(rows, vectors, cotangents, create_graph=False)
            else:
                rows = backbone(graph, vectors)
                pull = torch.func.vmap(
                    lambda g, rows=rows: torch.autograd.grad(rows, vectors, g)
                )
                pull(cotangents)
        sizes.append(largest.numel)
    entries = n_outputs * graph.n_edges * n_features
    assert sizes[0] < entries / 2
    assert sizes[1] >= entries  # what the meter reads without the primitives


@pytest.mark.parametrize("kind", [SchNet, PaiNN])
def test_number_of_threads(kind):
    graph, backbone = graph_of("crystal"), make(kind, 16, 3)
    vectors = edge_vectors(graph).requires_grad_()
    cotangents = torch.randn(40, graph.n_atoms, 16, dtype=torch.float64)
    before, results = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            with chained():
                rows = backbone(graph, vectors)
            results.append(chain_pull_back(rows, vectors, cotangents, False))
    finally:
        torch.set_num_threads(before)
    close(results[1], results[0], 1e-13)


@pytest.mark.parametrize("kind", [SchNet, PaiNN])
@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, torch.enable_grad]
)
def test_predictions_in_any_context(kind, context):
    """Nothing outside of ``predict`` decides whether derivatives can be computed."""
    graph = graph_of("batch")
    model = ForceField(make(kind), [Head("energy", members=4)]).double()
    names = ["energy", "forces"]
    expected = model.predict(graph, names, strategy="loop").head("energy")

    def predict(graph=graph):
        return model.predict(graph, names, strategy="chain").head("energy")

    with context():
        found = predict()
        again = predict()  # with slots that were kept
        inside = graph_of("batch")  # tensors without a version, in inference mode
        own = predict(inside)
    after = predict()
    for name in names:
        for one in (found, again, after, own, predict(inside)):
            close(one.members(name), expected.members(name))
            assert torch.equal(one.members(name), found.members(name))


@pytest.mark.parametrize("strategy", ["batched", "chain", "jacobian", "auto"])
@pytest.mark.parametrize("kind", [PaiNN, SchNet])
def test_second_derivatives_by_parameters(kind, strategy):
    """Newton steps, influence functions: gradients of gradients of a loss on forces."""
    torch.manual_seed(3)
    backbone = make(kind, n_features=5, n_layers=3)
    model = ForceField(backbone, [Head("energy", members=3)]).double()
    graph = graph_of("batch")
    parameters = [p for p in model.parameters() if p.requires_grad]
    directions = [torch.randn_like(p) for p in parameters]

    def curvature(strategy):
        wanted = ["energy", "forces"]
        out = model.predict(graph, wanted, strategy=strategy, create_graph=True)
        loss = sum((out[name] ** 3).sum() for name in wanted)
        slopes = torch.autograd.grad(
            loss, parameters, create_graph=True, materialize_grads=True
        )
        along = sum((a * b).sum() for a, b in zip(slopes, directions, strict=True))
        return torch.autograd.grad(along, parameters, materialize_grads=True)

    for found, expected in zip(curvature(strategy), curvature("loop"), strict=True):
        close(found, expected, 1e-9)
