"""Every strategy gives what the loop gives: values, forces, stress, parameter gradients."""

import copy

import pytest
import torch
from ase import Atoms

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives import strategies
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UserError
from gnnforce.models.combinations import mean_of
from gnnforce.models.derive import options_of
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import five_elements, skewed_pair, water

from .fields import graph_of, make_field
from .plain import PlainTorch

CUTOFF = 3.2
# more members than the 8 features in two heads, so that `jacobian` pools them
HEADS = (
    Head("sum", members=3),
    Head("linear", members=11, hidden=()),
    Head("mean", members=2, kind="node_mean"),
    Head("flat", members=9, kind="node_mean", hidden=()),
    Head("pool", members=10, kind="pooled", hidden=(8, 8)),
)
BACKBONES = {"PaiNN": PaiNN, "SchNet": SchNet, "plain": PlainTorch}
BATCHES = {
    "mixed": (five_elements(periodic=True), water(), Atoms("H"), Atoms()),
    "crystals": (five_elements(periodic=True), skewed_pair()),
    "molecule": (water(),),
    "empty": (Atoms(),),
    "apart": (Atoms("HO", [[0, 0, 0], [0, 0, 9.0]]), Atoms("C")),
}
WANTED = {"crystals": ("energy", "forces", "stress", "virial")}


@pytest.fixture(scope="module", params=BACKBONES)
def backbone(request):
    return BACKBONES[request.param]


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "ZBL"])
def model(request, backbone):
    return make_field(backbone, HEADS, cutoff=CUTOFF, repulsion=request.param)


def compare(found, expected, tolerance=1e-10):
    assert found.shape == expected.shape
    size = float(expected.abs().max()) if expected.numel() else 0.0
    worst = float((found - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= tolerance * max(size, 1e-3)


@pytest.fixture(params=[name for name in OF_MODELS if name != "loop"])
def strategy(request, model):
    if request.param not in options_of(model.backbone):
        pytest.skip("refused: see test_a_strategy_that_the_backbone_lacks")
    return request.param


@pytest.mark.parametrize(
    ("batch", "n_combinations"),
    [
        ("mixed", None),
        ("mixed", 1),
        ("mixed", 40),
        ("crystals", None),
        ("crystals", 3),
        ("molecule", None),
        ("empty", None),
        ("empty", 3),
        ("apart", None),
    ],
)
def test_derivatives_equal_those_of_the_loop(model, strategy, batch, n_combinations):
    graph = graph_of(*BATCHES[batch], cutoff=CUTOFF)
    wanted = WANTED.get(batch, ("energy", "forces"))
    weights = None
    if n_combinations is not None:
        weights = torch.randn(
            n_combinations, model.n_outputs, graph.n_graphs, dtype=torch.float64
        )
        wanted = ("energy", "forces", "stress")
    options = {"weights": weights}
    expected = model.predict(graph, wanted, strategy="loop", **options)
    found = model.predict(graph, wanted, strategy=strategy, **options)
    assert found.strategy == strategy
    for name, value in expected.items():
        compare(found[name], value)
        assert not found[name].requires_grad
    if batch in ("mixed", "crystals"):
        assert expected["forces"].abs().amax(dim=(1, 2)).min() > 1e-3


def parameter_gradients(model, graph, strategy, wanted, weights):
    own = copy.deepcopy(model)
    out = own.predict(
        graph, wanted, strategy=strategy, create_graph=True, weights=weights
    )
    sum((out[name] ** 2).sum() for name in wanted).backward()
    return {name: p.grad for name, p in own.named_parameters()}


@pytest.mark.parametrize("batch", ["mixed", "crystals", "apart"])
@pytest.mark.parametrize("combined", [False, True])
def test_parameter_gradients_equal_those_of_the_loop(model, strategy, batch, combined):
    graph = graph_of(*BATCHES[batch], cutoff=CUTOFF)
    wanted = ["energy", "forces"] + (["stress"] if batch == "crystals" else [])
    weights = None
    if combined:
        weights = torch.randn(2, model.n_outputs, graph.n_graphs, dtype=torch.float64)
    # without the energy: its gradient would hide that of the forces
    expected = parameter_gradients(model, graph, "loop", wanted[1:], weights)
    found = parameter_gradients(model, graph, strategy, wanted[1:], weights)
    for name, value in expected.items():
        zero = torch.zeros_like(dict(model.named_parameters())[name])
        compare(
            zero if found[name] is None else found[name], zero if value is None else value
        )
    reached = [name for name, value in expected.items() if value is not None]
    assert len(reached) > 4 or batch == "apart"


@pytest.mark.parametrize("memory", [1, 40_000, "1GB"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_pieces_change_nothing(model, strategy, memory, create_graph):
    graph = graph_of(*BATCHES["crystals"], cutoff=CUTOFF)
    wanted = ["energy", "forces", "stress"]
    options = {"strategy": strategy, "create_graph": create_graph}
    whole = model.predict(graph, wanted, **options)
    cut = model.predict(graph, wanted, memory=memory, **options)
    assert whole.choice.pieces == 1
    if memory == "1GB":
        assert cut.choice == whole.choice
    else:
        assert 1 < cut.choice.pieces <= cut.choice.passes
    if memory == 1:
        assert cut.choice.pieces == cut.choice.passes
    for name in wanted:
        compare(cut[name].detach(), whole[name].detach(), 1e-13)


def test_the_graph_is_freed_with_the_last_piece(model, strategy, monkeypatch):
    """All pull-backs through the backbone keep its graph, but the last one."""
    if strategy == "forward":
        pytest.skip("has no graph to free")
    kept = []
    original = torch.autograd.grad

    def watched(outputs, inputs, *args, **options):
        if inputs.shape[-1] == 3:  # edge vectors
            kept.append(options["retain_graph"])
        return original(outputs, inputs, *args, **options)

    graph = graph_of(*BATCHES["molecule"], cutoff=CUTOFF)
    model.predict(graph, strategy=strategy)  # the layout of a graph is made once
    monkeypatch.setattr(torch.autograd, "grad", watched)
    repulsion = [False] if model.repulsion is not None else []
    out = model.predict(graph, strategy=strategy, memory=1)
    n_pieces = out.choice.pieces
    assert sorted(kept) == sorted([*repulsion, *[True] * (n_pieces - 1), False])
    assert kept[-1] is False
    kept.clear()
    model.predict(graph, strategy=strategy, memory=1, create_graph=True)
    assert kept.count(True) == n_pieces


def test_limit_from_the_environment(model, monkeypatch):
    graph = graph_of(water(), cutoff=CUTOFF)
    monkeypatch.setenv("GNNFORCE_MEMORY", "1")
    assert model.predict(graph, strategy="batched").choice.pieces == model.n_outputs
    assert model.predict(graph, strategy="batched", memory="1GB").choice.pieces == 1
    monkeypatch.setenv("GNNFORCE_MEMORY", "lots")
    with pytest.raises(UserError, match="GNNFORCE_MEMORY='lots' is not a number"):
        model.predict(graph, strategy="batched")


def rows_pulled(monkeypatch):
    """Record the cotangents of every call of an engine."""
    rows = []
    for name, engine in list(strategies.ENGINES.items()):

        def counted(outputs, inputs, cotangents, *rest, engine=engine, name=name):
            rows.append((name, cotangents.shape[0]))
            return engine(outputs, inputs, cotangents, *rest)

        monkeypatch.setitem(strategies.ENGINES, name, counted)
    return rows


@pytest.mark.parametrize("name", OF_MODELS)
def test_one_combination_is_one_pull_back(model, name, monkeypatch):
    if name not in options_of(model.backbone):
        name = "auto"
    rows = rows_pulled(monkeypatch)
    graph = graph_of(water(), cutoff=CUTOFF)
    out = model.predict(graph, strategy=name, weights=mean_of("sum"))
    passes = 9 if name == "forward" else 1  # coordinates of water
    assert out.choice.passes == passes
    assert [n for _, n in rows] == ([] if name == "forward" else [1])


def test_jacobian_pulls_pooled_features_back(model, monkeypatch):
    rows = rows_pulled(monkeypatch)
    graph = graph_of(*BATCHES["crystals"], cutoff=CUTOFF)
    out = model.predict(graph, strategy="jacobian")
    # 3 + 2 outputs, and 8 features for each of three heads with 30 outputs
    assert [n for _, n in rows] == [29]
    assert out.choice.passes == 29
    reason = out.choice.reason
    assert "sum, mean not a function of pooled features" in reason
    assert "pool, linear, flat through 24 pooled features" in reason
    rows.clear()
    out = model.predict(graph, strategy="jacobian", heads=["sum", "mean"])
    assert [n for _, n in rows] == [5]
    assert "through" not in out.choice.reason
    weights = torch.randn(50, 30, 2, dtype=torch.float64)
    rows.clear()
    chosen = {"heads": ["linear", "flat", "pool"], "weights": weights}
    out = model.predict(graph, strategy="jacobian", **chosen)
    assert [n for _, n in rows] == [24]
    compare(out["forces"], model.predict(graph, strategy="loop", **chosen)["forces"])


def test_repulsion_is_differentiated_once(model, monkeypatch):
    if model.repulsion is None:
        pytest.skip("nothing is shared")
    lengths = []
    handle = model.repulsion.register_forward_hook(
        lambda _module, inputs, _output: lengths.append(inputs[1])
    )
    graph = graph_of(water(), cutoff=CUTOFF)
    for name in options_of(model.backbone):
        lengths.clear()
        model.predict(graph, strategy=name)
        assert len(lengths) == 1
    handle.remove()
    # its slopes are pulled back in a call of one row, whatever the number of outputs
    seen = []
    original = strategies.loop_pull_back

    def counted(outputs, inputs, cotangents, *rest):
        seen.append(tuple(cotangents.shape))
        return original(outputs, inputs, cotangents, *rest)

    monkeypatch.setitem(strategies.STRATEGIES, "loop", counted)
    model.predict(graph, strategy="batched")
    assert seen == [(1, 3)]


def test_a_strategy_that_the_backbone_lacks():
    model = make_field(PlainTorch)
    expected = (
        "does not support strategy 'chain'; it has auto, loop, batched, jacobian, forward"
    )
    for wanted in (["energy"], ["forces"]):
        with pytest.raises(UserError, match=expected):
            model.predict(graph_of(water()), wanted, strategy="chain")


def test_auto_is_deterministic_and_says_why(model, monkeypatch, tmp_path):
    monkeypatch.setenv("GNNFORCE_CACHE", str(tmp_path))
    graph = graph_of(water(), cutoff=CUTOFF)
    choices = {model.predict(graph).choice for _ in range(3)}
    assert len(choices) == 1
    (choice,) = choices
    assert choice.requested == "auto"
    assert choice.used in options_of(model.backbone)
    assert choice.reason.startswith("least estimated time of loop ")
    if isinstance(model.backbone, PlainTorch):  # nobody said that it has forward rules
        assert "forward" not in choice.reason


@pytest.mark.parametrize("dtype", [torch.float32])
def test_single_precision(backbone, strategy, dtype):
    model = make_field(backbone, HEADS, cutoff=CUTOFF, repulsion=True)
    graph = graph_of(*BATCHES["crystals"], cutoff=CUTOFF)
    expected = model.predict(graph, ["forces", "stress"], strategy="loop")
    found = model.to(dtype).predict(graph, ["forces", "stress"], strategy=strategy)
    for name, value in expected.items():
        assert found[name].dtype == torch.float64  # that of the graph
        compare(found[name], value, 2e-5)
