import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.parameters import parameter_gradients
from gnnforce.errors import ConfigError, GeometryError, UnknownElementError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models import parameters
from gnnforce.models.force_field import ForceField
from gnnforce.models.parameters import matching_names, parameter_jacobian
from gnnforce.readouts.head import Head

HEADS = [
    Head("pbe", members=3),
    Head("ccsd", members=2),
    Head("gap", kind="node_mean", hidden=(4,)),
    Head("dipole", members=2, kind="pooled"),
    Head("linear", hidden=()),
    Head("far", members=2, kind="node_mean"),  # in the stack of the first two
]


def make(backbone=PaiNN, dtype=torch.float64, heads=HEADS) -> ForceField:
    torch.manual_seed(1)
    model = ForceField(backbone([1, 6, 8, 14], 8, 2, cutoff=4.0), heads, repulsion=True)
    return model.to(dtype)


def structures() -> list[Atoms]:
    return [molecule("H2O"), Atoms(), bulk("Si", cubic=True), Atoms("H"), molecule("CH4")]


def graph_of(atoms: Atoms) -> AtomGraph:
    return AtomGraph.from_atoms(atoms, 4.0)


def backward_each(model, graph):
    """One backward for every output and graph, into ``.grad``."""
    energy = model.predict(graph, ["energy"], create_graph=True)["energy"]
    result = {}
    for n in range(energy.shape[0]):
        for g in range(energy.shape[1]):
            model.zero_grad(set_to_none=True)
            energy[n, g].backward(retain_graph=True)
            for name, p in model.named_parameters():
                value = torch.zeros_like(p) if p.grad is None else p.grad.clone()
                result[name, n, g] = value
    model.zero_grad(set_to_none=True)
    return result


@pytest.mark.usefixtures("no_slice_loops")
@pytest.mark.parametrize("backbone", [PaiNN, SchNet])
@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-4)]
)
def test_batch_equals_a_backward_per_output_and_graph(backbone, dtype, rtol):
    model = make(backbone, dtype)
    graph = batch([graph_of(atoms) for atoms in structures()])
    expected = backward_each(model, graph)
    got = parameter_jacobian(model, graph)
    assert list(got) == [name for name, _ in model.named_parameters()]
    # the isolated atom takes off what the last biases add: zero, up to rounding
    floor = 0.01 * max(float(value.abs().max()) for value in expected.values())
    for name, p in model.named_parameters():
        row = got[name]
        assert row.shape == (model.n_outputs, 5, *p.shape)
        assert (row.dtype, row.requires_grad) == (dtype, False)
        wanted = torch.stack(
            [
                torch.stack([expected[name, n, g] for g in range(5)])
                for n in range(model.n_outputs)
            ]
        )
        scale = float(wanted.abs().max())
        assert float((row - wanted).abs().max()) <= rtol * max(scale, floor), name
        assert p.grad is None


def test_one_graph_has_no_axis_of_graphs():
    model = make()
    one, batched = graph_of(molecule("H2O")), batch([graph_of(molecule("H2O"))])
    got, with_axis = parameter_jacobian(model, one), parameter_jacobian(model, batched)
    for name, p in model.named_parameters():
        assert got[name].shape == (model.n_outputs, *p.shape)
        assert with_axis[name].shape == (model.n_outputs, 1, *p.shape)
        torch.testing.assert_close(got[name], with_axis[name][:, 0], rtol=1e-12, atol=0)


def test_an_output_does_not_depend_on_the_readout_of_another():
    model = make(heads=[Head("a"), Head("b", members=2)])
    got = parameter_jacobian(model, graph_of(molecule("H2O")), "readouts")
    for row in got.values():  # (n_outputs, n_members, ...)
        sizes = row.flatten(2).abs().sum(-1)
        assert torch.equal(sizes, torch.diag(sizes.diagonal()))
    assert got["readouts.perceptrons.0.weights.0"].abs().sum() > 0


def test_empty_graph_and_lone_atom_have_zeros():
    model = make()
    for atoms in (Atoms(), Atoms("H")):
        for name, row in parameter_jacobian(model, graph_of(atoms)).items():
            assert float(row.abs().max()) < 1e-15, name


@pytest.mark.parametrize("chunk", [1, 2, 4, 100])
def test_chunks_and_memory_do_not_matter(chunk):
    model, graph = make(), graph_of(molecule("CH4"))
    expected = parameter_jacobian(model, graph)
    for options in ({"chunk": chunk}, {"memory": "1kB"}, {"memory": 1e12}):
        got = parameter_jacobian(model, graph, **options)
        for name, row in expected.items():
            torch.testing.assert_close(got[name], row, rtol=1e-12, atol=1e-14)


def test_pieces_follow_the_limit(monkeypatch):
    model, graph = make(heads=[Head("a", members=16)]), graph_of(molecule("CH4"))
    seen = []

    def spy(outputs, leaves, *, chunk, keep):
        seen.append(chunk)
        return parameter_gradients(outputs, leaves, chunk=chunk, keep=keep)

    monkeypatch.setattr(parameters, "parameter_gradients", spy)
    for memory in ("1kB", "400kB", None):
        parameter_jacobian(model, graph, memory=memory)
    assert seen[0] == 1
    assert 1 < seen[1] < 16
    assert seen[2] == 16
    monkeypatch.setenv("GNNFORCE_MEMORY", "1kB")
    parameter_jacobian(model, graph)
    assert seen[3] == 1
    with pytest.raises(ConfigError, match="memory='much' is not a number of bytes"):
        parameter_jacobian(model, graph, "readouts", chunk=1, memory="much")


def test_what_is_frozen_has_a_gradient_and_stays_frozen():
    model, graph = make(), graph_of(molecule("H2O"))
    expected = parameter_jacobian(model, graph)
    model.backbone.requires_grad_(requires_grad=False)
    flags = [p.requires_grad for p in model.parameters()]
    with torch.no_grad():
        got = parameter_jacobian(model, graph)
    assert [p.requires_grad for p in model.parameters()] == flags
    for name, row in expected.items():
        assert torch.equal(got[name], row)


def test_inference_mode_and_grad_fields():
    model = make()
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)
    expected = parameter_jacobian(model, graph_of(molecule("H2O")))
    with torch.inference_mode():
        graph = graph_of(molecule("H2O")).clone()
        graph["positions"] = graph.positions * 1.0
        got = parameter_jacobian(model, batch([graph]))
    for name, p in model.named_parameters():
        torch.testing.assert_close(
            got[name][:, 0], expected[name], rtol=1e-12, atol=1e-14
        )
        assert bool((p.grad == 3).all())


def test_names():
    model, graph = make(), graph_of(molecule("H2O"))
    every = parameter_jacobian(model, graph)
    names = list(every)
    first = names[0]
    for chosen, expected in (
        (first, [first]),
        ("backbone", [n for n in names if n.startswith("backbone.")]),
        ("backbone.", [n for n in names if n.startswith("backbone.")]),
        (["readouts.*", first], [n for n in names if n == first or n[:8] == "readouts"]),
        ("*", names),
        ([], []),
    ):
        got = parameter_jacobian(model, graph, chosen)
        assert list(got) == expected
        for name, row in got.items():
            torch.testing.assert_close(row, every[name], rtol=1e-12, atol=1e-14)


def test_unknown_names():
    model, graph = make(), graph_of(molecule("H2O"))
    with pytest.raises(
        UserError, match=r"no parameter fits 'backbon'. Did you mean 'bac"
    ):
        parameter_jacobian(model, graph, "backbon")
    wrong = "readouts.perceptrons.0.weight.0"
    with pytest.raises(UserError, match=r"mean 'readouts.perceptrons.0.weights.0'"):
        parameter_jacobian(model, graph, ["backbone", wrong])
    with pytest.raises(UserError, match=r"There are backbone\.\*, readouts\.\*"):
        parameter_jacobian(model, graph, "xyz*")


def test_refused():
    model = make()
    with pytest.raises(GeometryError, match="cutoff of 3"):
        parameter_jacobian(model, AtomGraph.from_atoms(molecule("H2O"), 3.0))
    with pytest.raises(UnknownElementError):
        parameter_jacobian(model, graph_of(molecule("NH3")))
    for names in (None, "backbone", "readouts", []):
        with pytest.raises(UserError, match="chunk must be at least 1"):
            parameter_jacobian(model, graph_of(molecule("H2O")), names, chunk=0)


def test_matching_keeps_the_order_and_the_case():
    names = ["b.x", "a.y", "a.X", "ab"]
    assert matching_names(["a", "b.?"], names) == ["b.x", "a.y", "a.X"]
    assert matching_names(["*.X"], names) == ["a.X"]
