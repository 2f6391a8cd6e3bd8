"""Forces and stress are those of the energy, and a loss on them reaches the network."""

import copy

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.graph.batch import batch
from gnnforce.models.leaves import FIELDS
from gnnforce.ops import cutoff as envelopes
from gnnforce.testing.measure import random_rotation
from gnnforce.testing.systems import five_elements, skewed_pair, water

from .fields import ARCHITECTURES, KINDS, evaluate, graph_of, make_field, relative

CUTOFF = 3.2  # the five atoms have pairs beyond it
SYSTEMS = {
    "open": five_elements(),
    "periodic": five_elements(periodic=True),
    "slab": Atoms(
        "CO", [[0, 0, 0], [0.4, 0.2, 1.2]], cell=[2.6, 2.9, 9], pbc=[True, True, False]
    ),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "ZBL"])
def model(request, architecture):
    return make_field(architecture, KINDS, cutoff=CUTOFF, repulsion=request.param)


def slope(model, make, step=4e-4):
    """Central differences of sixth order of every energy."""
    weights = {1: 45, 2: -9, 3: 1}
    total = 0
    for n, weight in weights.items():
        ahead, behind = (
            evaluate(model, make(sign * n * step), "energy")["energy"] for sign in (1, -1)
        )
        total = total + weight * (ahead - behind)
    return total / (60 * step)


@pytest.mark.parametrize("system", SYSTEMS)
def test_forces_are_minus_the_slope_of_the_energy(model, system):
    """C51, every output, every atom and axis."""
    atoms = SYSTEMS[system]
    forces = evaluate(model, atoms)["forces"]
    expected = np.zeros_like(forces)
    for index in np.ndindex(len(atoms), 3):

        def moved(step, index=index):
            other = atoms.copy()
            other.positions[index] += step
            return other

        expected[:, *index] = -slope(model, moved)
    for row in range(model.n_outputs):
        assert relative(forces[row], expected[row]) < 1e-7
        assert np.abs(forces[row]).max() > 1e-3
    assert np.abs(forces.sum(axis=1)).max() < 1e-10


@pytest.mark.parametrize("system", ["periodic", "slab"])
def test_stress_is_the_slope_of_the_strain(model, system):
    """C51, C47: symmetric, per volume, and the virial with the opposite sign."""
    atoms = SYSTEMS[system]
    found = evaluate(model, atoms, "stress", "virial")
    for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)):

        def strained(step, i=i, j=j):
            bend = np.eye(3)
            bend[i, j] += step / 2
            bend[j, i] += step / 2
            other = atoms.copy()
            other.set_cell(atoms.cell.array @ bend, scale_atoms=False)
            other.positions = atoms.positions @ bend
            return other

        expected = slope(model, strained) / atoms.get_volume()
        size = np.abs(found["stress"]).max(axis=(1, 2))
        assert (np.abs(found["stress"][:, i, j] - expected) < 1e-7 * size).all()
    np.testing.assert_array_equal(found["stress"], found["stress"].transpose(0, 2, 1))
    np.testing.assert_allclose(found["virial"], -atoms.get_volume() * found["stress"])


def test_rotation_reflection_and_order(model):
    atoms = SYSTEMS["open"]
    one = evaluate(model, atoms)
    matrix = random_rotation(4, reflect=True)
    order = [3, 1, 4, 0, 2]
    other = atoms[order]
    other.positions = other.positions @ matrix.T + 7.0
    turned = evaluate(model, other)
    np.testing.assert_allclose(turned["energy"], one["energy"], atol=1e-10)
    expected = one["forces"][:, order] @ matrix.T
    np.testing.assert_allclose(turned["forces"], expected, atol=1e-10)


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("create_graph", [False, True])
def test_strategies_agree_without_slice_loops(model, create_graph):
    graph = graph_of(*SYSTEMS.values(), Atoms("H"), cutoff=CUTOFF)
    weights = torch.rand(3, model.n_outputs, graph.n_graphs, dtype=torch.float64)
    for options in ({}, {"weights": weights}):
        found = {}
        for strategy in ("loop", "batched"):
            wanted = ["energy", "forces", "stress"] if options else ["energy", "forces"]
            out = model.predict(
                graph, wanted, strategy=strategy, create_graph=create_graph, **options
            )
            assert out.strategy == strategy
            found[strategy] = {name: value.detach() for name, value in out.items()}
            assert all(value.requires_grad is create_graph for value in out.values())
        for name, value in found["loop"].items():
            assert relative(found["batched"][name], value) < 1e-12


@pytest.fixture(scope="module")
def gradients(model):
    """Of a loss on forces and stress, by strategy, for every parameter."""
    graph = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
    result = {}
    for strategy in ("loop", "batched"):
        own = copy.deepcopy(model)
        out = own.predict(
            graph, ["forces", "stress"], strategy=strategy, create_graph=True
        )
        ((out["forces"] ** 2).sum() + 10 * (out["stress"] ** 2).sum()).backward()
        result[strategy] = {name: p.grad for name, p in own.named_parameters()}
    return result


def test_a_loss_on_forces_reaches_every_parameter(model, gradients):
    own = copy.deepcopy(model)
    graph = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
    own.predict(graph, ["energy"], create_graph=True)["energy"].sum().backward()
    for name, parameter in own.named_parameters():
        gradient = gradients["loop"][name]
        last_bias = name.startswith("readouts") and parameter.shape[1:] == (1, 1)
        if last_bias:  # cancels against the isolated atom
            assert parameter.grad.abs().max() < 1e-12
            continue
        assert parameter.grad.any(), name
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.any(), name


def test_gradients_of_parameters_equal_between_strategies(gradients):
    for name, expected in gradients["loop"].items():
        found = gradients["batched"][name]
        if expected is None or found is None:
            assert expected is found is None
            continue
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_gradients_of_parameters_are_the_slope_of_the_loss(model, gradients):
    """Central differences along a random direction of all weights at once."""
    graph = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
    generator = torch.Generator().manual_seed(1)
    directions = {
        name: torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for name, p in model.named_parameters()
    }

    def loss(step):
        own = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in own.named_parameters():
                parameter.add_(step * directions[name])
        out = own.predict(graph, ["forces", "stress"])
        return float((out["forces"] ** 2).sum() + 10 * (out["stress"] ** 2).sum())

    h = 1e-4
    expected = (8 * (loss(h) - loss(-h)) - loss(2 * h) + loss(-2 * h)) / (12 * h)
    found = sum(
        float((gradient * directions[name]).sum())
        for name, gradient in gradients["loop"].items()
        if gradient is not None
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_no_gradient_across_graphs(model):
    """What surrounds a structure in its batch changes nothing, nor does moving it."""
    kept = SYSTEMS["periodic"]
    alone = evaluate(model, kept)
    moved = water()
    moved.rattle(0.1, seed=1)
    for others in ([water()], [moved], [skewed_pair(), Atoms("H")]):
        out = model.predict(graph_of(*others, kept, cutoff=CUTOFF))
        forces = out["forces"][:, -len(kept) :]
        np.testing.assert_allclose(forces, alone["forces"], atol=1e-12)
        np.testing.assert_allclose(out["energy"][:, -1], alone["energy"], atol=1e-12)


def jumps(model, atom=2, axis=2, strategy="auto"):
    """Differences across the cutoff: energy, force, and slope of the force."""
    atoms = Atoms("COH", [[0, 0, 0], [0.2, 1.1, 0], [0, 0, CUTOFF]])

    def at(distance):
        atoms.positions[2, 2] = distance
        found = evaluate(model, atoms, strategy=strategy)
        return found["energy"], found["forces"][:, atom, axis]

    h = 1e-4
    near, inside, beyond, far = (at(CUTOFF + n * h) for n in (-2, -1, 1, 2))
    slopes = (inside[1] - near[1]) / h, (far[1] - beyond[1]) / h
    return (
        np.abs(beyond[0] - inside[0]).max(),
        np.abs(beyond[1] - inside[1]).max(),
        np.abs(slopes[1] - slopes[0]).max(),
    )


def test_smooth_at_the_cutoff(model):
    """The third atom leaves the first one's reach, still bound to the second."""
    h = 1e-4
    energy, force, curvature = jumps(model)
    drift = np.abs(
        evaluate(model, Atoms("COH", [[0, 0, 0], [0.2, 1.1, 0], [0, 0, 3]]))["forces"][
            :, 2, 2
        ]
    ).max()
    assert drift > 1e-4
    assert energy < 10 * drift * h
    assert force < 1e-2 * h
    assert curvature < 1e-3


def test_the_smoothness_test_sees_a_cosine(architecture, monkeypatch):
    model = make_field(architecture, KINDS, cutoff=CUTOFF)
    smooth = jumps(model, strategy="loop")[2]
    module = __import__(type(model.backbone).__module__, fromlist=["x"])
    monkeypatch.setattr(module, "polynomial_envelope", envelopes.cosine_cutoff)
    assert jumps(model, strategy="loop")[2] > 100 * smooth


def test_frozen_parameters(model):
    """A model that does not learn still has forces, and stress."""
    frozen = copy.deepcopy(model).requires_grad_(False)
    for strategy in ("loop", "batched"):
        options = {"strategy": strategy}
        wanted = ("energy", "forces", "stress")
        found = evaluate(frozen, SYSTEMS["periodic"], *wanted, **options)
        expected = evaluate(model, SYSTEMS["periodic"], *wanted, **options)
        for name in wanted:
            np.testing.assert_array_equal(found[name], expected[name])
    assert not evaluate(frozen, Atoms("H"))["forces"].any()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("strategy", ["loop", "batched"])
def test_inside_no_grad_and_inference_mode(model, context, strategy):
    wanted = ["energy", "forces", "stress", "virial"]
    graph = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
    expected = model.predict(graph, wanted, strategy=strategy)
    with context():
        inside = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
        for given in (graph, inside, batch([inside[0], inside[1]])):
            found = model.predict(given, wanted, strategy=strategy)
            for name in wanted:
                assert torch.equal(found[name], expected[name])
                assert not found[name].requires_grad
                assert not found[name].is_inference()
        trained = model.predict(inside, ["forces"], strategy=strategy, create_graph=True)
        assert trained["forces"].requires_grad


def test_nothing_stays_behind(model):
    """Results are detached, the graph is as it was, no gradient on parameters."""
    graph = graph_of(SYSTEMS["periodic"], SYSTEMS["slab"], cutoff=CUTOFF)
    names = list(graph.keys())
    before = {name: graph[name].clone() for name in FIELDS}
    for strategy in ("loop", "batched"):
        out = model.predict(graph, ["energy", "forces", "stress"], strategy=strategy)
        assert all(value.grad_fn is None for value in out.values())
        assert not any(value.requires_grad for value in out.values())
    assert list(graph.keys()) == names
    for name, value in before.items():
        assert torch.equal(graph[name], value)
        assert not graph[name].requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()
