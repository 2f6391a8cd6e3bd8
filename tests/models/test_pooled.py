import pytest
import torch

from gnnforce.models.combinations import mean_of
from gnnforce.models.pooled import describe, pools_for
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements, skewed_pair

from .fields import graph_of, make_field, relative

# of equal width, so that every pool serves more outputs than its 4 features
ELEMENT_BLOCKS = tuple(Head(f"l{n}", members=4, hidden=()) for n in range(9))
CASES = {
    "one linear head": (Head("a", members=6, hidden=()),),
    "mean": (Head("a", members=6, kind="node_mean", hidden=()),),
    "pooled": (Head("a", members=3, kind="pooled"), Head("b", members=3, kind="pooled")),
    "blocks of elements": ELEMENT_BLOCKS,
    "behind others": (
        Head("deep", members=2),
        Head("a", members=6, kind="pooled", hidden=()),
        Head("few", members=2, hidden=()),
        Head("b", members=5, hidden=()),
    ),
}
PULLED = {
    "one linear head": 4,
    "mean": 4,
    "pooled": 4,
    "blocks of elements": 28,  # seven elements of the model, four features
    "behind others": 2 + 4 + 2 + 4,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("architecture", ["PaiNN", "SchNet"])
def test_fewer_pull_backs_than_outputs_and_the_same_numbers(architecture, case):
    model = make_field(architecture, CASES[case], n_features=4, repulsion=True)
    graph = graph_of(five_elements(periodic=True), skewed_pair())
    wanted = ["energy", "forces", "stress"]
    expected = model.predict(graph, wanted, strategy="loop")
    found = model.predict(graph, wanted, strategy="jacobian")
    assert found.choice.passes == PULLED[case] < model.n_outputs
    for name in wanted:
        assert relative(found[name], expected[name]) < 1e-12


def test_words():
    model = make_field("SchNet", CASES["behind others"], n_features=4)
    pools, n_pulled = pools_for(model.readouts, model.outputs, 4, None)
    assert n_pulled == 12
    assert describe(pools, model.outputs) == (
        "a, b through 8 pooled features; deep not a function of pooled features, so one "
        "pull-back each row; few with no more rows than features, pulled back as is"
    )
    none, n_pulled = pools_for(model.readouts, model.outputs, 4, mean_of("a"))
    assert not none.heads
    assert n_pulled == 1


def test_combinations_through_pools():
    heads = CASES["behind others"][1:]
    model = make_field("PaiNN", heads, n_features=4)
    graph = graph_of(five_elements(periodic=True), skewed_pair())
    weights = torch.randn(30, model.n_outputs, 2, dtype=torch.float64)
    options = {"weights": weights, "wanted": ["forces", "stress"]}
    expected = model.predict(graph, strategy="loop", **options)
    found = model.predict(graph, strategy="jacobian", **options)
    assert found.choice.passes == 12
    for name in ("forces", "stress"):
        assert relative(found[name], expected[name]) < 1e-12
