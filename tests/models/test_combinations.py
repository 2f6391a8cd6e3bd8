import pytest
import torch
from ase import Atoms

from gnnforce.errors import StatisticsError, UnknownHeadError, UserError
from gnnforce.models.combinations import (
    count,
    deviation_of,
    difference_of,
    mean_of,
    weights_of,
)
from gnnforce.readouts.head import Head, OutputTable
from gnnforce.testing.systems import five_elements, skewed_pair, water

from .fields import graph_of, make_field

HEADS = (Head("pbe", members=4), Head("cc", members=3, kind="node_mean"), Head("one"))
TABLE = OutputTable(HEADS)
BATCH = (five_elements(periodic=True), water(), skewed_pair())
ENERGY = torch.tensor(
    [[1.0, 5], [2, 5], [3, 5], [4, 5], [1, 2], [2, 4], [3, 9], [7, 7]]
).double()


@pytest.fixture(scope="module")
def model():
    return make_field("PaiNN", HEADS, repulsion=True)


@pytest.mark.parametrize("strategy", ["loop", "batched", "chain", "jacobian", "forward"])
def test_means_and_differences_are_those_of_all_rows(model, strategy):
    graph = graph_of(*BATCH)
    full = model.predict(graph, ["energy", "forces"], strategy="loop")
    pbe, cc = (full.head(name).mean("forces") for name in ("pbe", "cc"))
    for weights, expected in (
        (mean_of("pbe"), pbe),
        (mean_of(), pbe),  # the first head
        (difference_of("cc", "pbe"), cc - pbe),
    ):
        out = model.predict(graph, ["forces"], weights=weights, strategy=strategy)
        torch.testing.assert_close(out["forces"][0], expected, rtol=1e-11, atol=1e-12)
    several = [mean_of("cc"), difference_of("cc", "pbe")]
    out = model.predict(graph, ["forces"], weights=several, strategy=strategy)
    torch.testing.assert_close(out["forces"], torch.stack([cc, cc - pbe]))


@pytest.mark.parametrize("strategy", ["loop", "batched", "chain", "jacobian", "forward"])
def test_bias_on_the_uncertainty_is_the_slope_of_the_deviation(model, strategy):
    """Central differences of the standard deviation, every atom and axis of water."""
    atoms = water()
    out = model.predict(
        graph_of(atoms), ["forces"], weights=deviation_of("pbe"), strategy=strategy
    )
    h = 1e-4
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for atom in range(3):
        for axis in range(3):
            ends = []
            for step in (h, -h):
                other = atoms.copy()
                other.positions[atom, axis] += step
                energy = model.predict(graph_of(other), ["energy"])
                ends.append(energy.head("pbe").std("energy")[0])
            expected[atom, axis] = -(ends[0] - ends[1]) / (2 * h)
    torch.testing.assert_close(out["forces"][0], expected, rtol=1e-5, atol=1e-7)
    assert expected.abs().max() > 1e-2


def test_gradients_of_the_deviation_for_training(model):
    """The weights depend on the network too."""
    graph = graph_of(*BATCH)
    results = []
    for strategy in ("loop", "batched", "chain", "forward"):
        out = model.predict(
            graph,
            ["forces"],
            weights=deviation_of("pbe"),
            strategy=strategy,
            create_graph=True,
        )
        results.append(
            torch.autograd.grad(
                (out["forces"] ** 2).sum(), list(model.parameters()), allow_unused=True
            )
        )
    with torch.no_grad():
        parameter = model.readouts.perceptrons[0].weights[0]
        direction = torch.randn_like(parameter)
        ends = []
        for step in (1e-5, -1e-5):
            parameter.add_(step * direction)
            out = model.predict(graph, ["forces"], weights=deviation_of("pbe"))
            ends.append(float((out["forces"] ** 2).sum()))
            parameter.sub_(step * direction)
    names = [name for name, _ in model.named_parameters()]
    place = names.index("readouts.perceptrons.0.weights.0")
    slope = (ends[0] - ends[1]) / 2e-5
    assert float((results[0][place] * direction).sum()) == pytest.approx(slope, rel=1e-5)
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            if one is not None and other is not None:
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_slopes_by_hand():
    weights = weights_of(deviation_of("cc"), ENERGY, TABLE)
    assert weights.shape == (1, 8, 2)
    own = ENERGY[4:7].clone().requires_grad_()
    torch.std(own, dim=0, correction=1).sum().backward()
    torch.testing.assert_close(weights[0, 4:7], own.grad)
    assert not weights[0, :4].any()
    assert not weights[0, 7:].any()


def test_members_that_agree_have_no_slope():
    """The second graph: a kink, not nan."""
    weights = weights_of(deviation_of("pbe"), ENERGY, TABLE)
    assert weights[0, :4, 0].abs().min() > 0.1
    assert not weights[0, :, 1].any()
    model = make_field("PaiNN", HEADS)
    alone = model.predict(graph_of(Atoms("H")), ["forces"], weights=deviation_of("pbe"))
    assert not alone["forces"].any()


def test_refused(model):
    graph = graph_of(water())
    with pytest.raises(StatisticsError, match="'one' has one member"):
        model.predict(graph, weights=deviation_of("one"))
    with pytest.raises(UnknownHeadError, match=r"no head 'pbf'.*mean 'pbe'"):
        model.predict(graph, weights=mean_of("pbf"))
    with pytest.raises(UnknownHeadError, match="no head 'pbe'"):
        model.predict(graph, weights=mean_of("pbe"), heads=["cc"])
    for wrong in ("mean", ["mean"], 3, [mean_of(), torch.ones(1)]):
        with pytest.raises(UserError, match="weights must be a tensor"):
            model.predict(graph, weights=wrong)


def test_count():
    assert count(mean_of()) == 1
    assert count([mean_of(), deviation_of()]) == 2
    assert count(torch.ones(5, 8, 2)) == 5
    assert count([]) == 0
    assert weights_of([], ENERGY, TABLE).shape == (0, 8, 2)


def test_no_combination_has_no_rows(model):
    for strategy in ("loop", "batched", "chain", "jacobian", "forward"):
        out = model.predict(graph_of(water()), weights=[], strategy=strategy)
        assert out["forces"].shape == (0, 3, 3)
