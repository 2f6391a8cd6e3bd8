import pytest
import torch
from ase import Atoms
from ase.build import molecule

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.readouts.head import Head
from gnnforce.readouts.stack import Features, HeadStack

HEADS = (
    Head("a", members=2),
    Head("mean", kind="node_mean"),
    Head("wide", hidden=(5, 4)),
    Head("pool", members=3, kind="pooled"),
    Head("b"),
)
ELEMENTS = [8, 1, 6]


@pytest.fixture
def stack():
    torch.manual_seed(0)
    stack = HeadStack(HEADS, ELEMENTS, 6).double()
    for number, head in enumerate(HEADS):
        table = {z: -10.0 * number - z for z in ELEMENTS}
        stack.references.set_energies({head.name: table})
        stack.references.set_scales({head.name: {8: 2.0, 1: 0.5, 6: 1.5}})
    return stack


@pytest.fixture
def inputs():
    structures = [molecule("H2O"), Atoms("C"), Atoms(), molecule("CO2")]
    graph = batch([AtomGraph.from_atoms(atoms, 3.0) for atoms in structures])
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(10, 6, generator=generator, dtype=torch.float64)
    return graph, Features(rows[:7], rows[7:])


def slow(stack, features, graph, head, member):
    """The formulas in the docstring of Head, graph by graph and atom by atom."""
    group = [h for h in HEADS if (h.kind == "pooled", h.hidden) == key_of(head)]
    perceptron = stack.perceptrons[
        list(dict.fromkeys(map(key_of, HEADS))).index(key_of(head))
    ]
    first = sum(h.members for h in group[: group.index(head)])

    def f(x):
        return perceptron(x[None])[first + member, 0, 0]

    e0 = stack.references.as_dict("energies")[head.name]
    scale = stack.references.as_dict("scales")[head.name]
    result = []
    for number in range(graph.n_graphs):
        atoms = (graph.graph_index == number).nonzero()[:, 0].tolist()
        numbers = [int(graph.numbers[i]) for i in atoms]
        h = [features.atoms[i] for i in atoms]
        h0 = [features.isolated[ELEMENTS.index(z)] for z in numbers]
        if not atoms:
            result.append(torch.zeros((), dtype=torch.float64))
        elif head.kind == "pooled":
            pooled = sum(a - b for a, b in zip(h, h0, strict=True))
            mean = sum(scale[z] for z in numbers) / len(numbers)
            value = mean * (f(pooled) - f(torch.zeros_like(pooled)))
            result.append(value + sum(e0[z] for z in numbers))
        else:
            terms = [
                scale[z] * (f(a) - f(b)) + e0[z]
                for z, a, b in zip(numbers, h, h0, strict=True)
            ]
            total = sum(terms)
            result.append(total / len(terms) if head.kind == "node_mean" else total)
    return torch.stack(result)


def key_of(head):
    return (head.kind == "pooled", head.hidden)


def test_all_heads_together_equal_the_formulas_one_by_one(stack, inputs):
    graph, features = inputs
    out = stack(features, graph, None, stack.outputs)
    assert out.energy.shape == (8, 4)
    assert out.energy.dtype == torch.float64
    row = 0
    for head in HEADS:
        for member in range(head.members):
            expected = slow(stack, features, graph, head, member)
            torch.testing.assert_close(out.energy[row], expected, rtol=1e-12, atol=1e-12)
            row += 1


def test_energies_of_atoms_sum_to_the_energy(stack, inputs):
    graph, features = inputs
    out = stack(features, graph, None, stack.outputs)
    for head in (HEADS[0], HEADS[2], HEADS[4]):
        rows = stack.outputs.slice(head.name)
        total = torch.zeros(head.members, 4, dtype=torch.float64)
        total.index_add_(1, graph.graph_index, out.energies[rows])
        torch.testing.assert_close(total, out.energy[rows])


@pytest.mark.parametrize("names", [["b"], ["pool", "a"], ["wide"], ["mean", "b"]])
def test_some_heads(stack, inputs, names):
    graph, features = inputs
    full = stack(features, graph, None, stack.outputs)
    table = stack.outputs.select(names)
    some = stack(features, graph, None, table)
    expected = torch.cat([full.energy[stack.outputs.slice(name)] for name in table.names])
    torch.testing.assert_close(some.energy, expected)


def test_shared_energy_reaches_sums_only(stack, inputs):
    graph, features = inputs
    shared = torch.arange(7, dtype=torch.float64)
    change = (
        stack(features, graph, shared, stack.outputs).energy
        - stack(features, graph, None, stack.outputs).energy
    )
    added = torch.tensor([0.0 + 1 + 2, 3, 0, 4 + 5 + 6]).double()
    for head in HEADS:
        expected = added if head.kind == "node_sum" else 0 * added
        rows = change[stack.outputs.slice(head.name)]
        torch.testing.assert_close(rows, expected.expand_as(rows))


def test_committee_starts_with_a_spread(stack, inputs):
    graph, features = inputs
    energy = stack(features, graph, None, stack.outputs).energy
    assert energy[:2, 0].std() > 1e-3
    assert energy[4:7, 0].std() > 1e-3


@pytest.mark.parametrize("names", [[h.name for h in HEADS], ["b", "pool"]])
def test_copies_of_the_features_separate_the_slopes(stack, inputs, names):
    """One backward pass of the sum gives every output's slope in its own copy."""
    graph, features = inputs
    chosen = stack.outputs.select(names)
    atoms = features.atoms.requires_grad_()
    plain = stack(features, graph, None, chosen)
    copies = atoms.expand(chosen.n_outputs, *atoms.shape)
    apart = stack(features._replace(atoms=copies), graph, None, chosen)
    for one, other in zip(apart, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
    (slopes,) = torch.autograd.grad(apart.energy.sum(), copies)
    for row, energy in enumerate(plain.energy):
        (expected,) = torch.autograd.grad(energy.sum(), atoms, retain_graph=True)
        torch.testing.assert_close(slopes[row], expected, rtol=1e-12, atol=1e-13)
    assert slopes.abs().amax(dim=(1, 2)).min() > 1e-3
