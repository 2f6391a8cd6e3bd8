"""Heads, members and combinations: which row is what, and what it costs."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.backbones.schnet import SchNet
from gnnforce.errors import GeometryError, StressError, UnknownHeadError, UserError
from gnnforce.models.checkpoint import load
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.systems import copper, five_elements, skewed_pair, water

from .fields import ARCHITECTURES, ELEMENTS, KINDS, THREE, evaluate, graph_of, make_field

CRYSTAL = five_elements(periodic=True)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request):
    return make_field(request.param, KINDS)


def test_what_a_model_says_of_itself(model):
    assert model.head_names == ["sum", "linear", "mean", "pool"]
    assert model.n_outputs == model.outputs.n_outputs == 7
    assert model.elements == ELEMENTS
    assert model.cutoff == 5.0
    assert model.dtype == torch.float64
    assert model.device == torch.device("cpu")
    assert model.references()["mean"] == {z: -30.0 - 0.3 * z for z in ELEMENTS}
    assert model.scales()["linear"][14] == pytest.approx(1.38)


def test_shapes(model):
    graph = graph_of(CRYSTAL, skewed_pair(), water())
    out = model.predict(graph, ["energy", "forces"])
    assert out["energy"].shape == (7, 3)
    assert out["forces"].shape == (7, 10, 3)
    crystals = graph_of(CRYSTAL, skewed_pair())
    last = model.predict(crystals, ["energy", "stress", "forces"], outputs_last=True)
    first = model.predict(crystals, ["energy", "stress", "forces"])
    assert last["stress"].shape == (2, 3, 3, 7)
    for name, value in first.items():
        assert torch.equal(last[name], value.movedim(0, -1))
        assert torch.equal(last.head("mean").members(name), value[3:5])


@pytest.mark.parametrize("strategy", ["auto", "loop", "batched"])
def test_one_pass_through_the_backbone(model, strategy):
    """C48: whatever is asked for, and however many outputs there are."""
    calls = []
    handle = model.backbone.register_forward_hook(lambda *_: calls.append(1))
    with_energies = {"heads": ["sum", "linear"]}
    for wanted, options in (
        (["energy"], {}),
        (["forces"], {}),
        (["energy", "energies", "forces", "stress", "virial"], with_energies),
        (["forces", "stress"], {"create_graph": True}),
    ):
        calls.clear()
        out = model.predict(graph_of(copper()), wanted, strategy=strategy, **options)
        assert list(out) == wanted
        assert len(calls) == 1
    handle.remove()


def test_each_quantity_can_be_asked_alone(model):
    together = evaluate(model, CRYSTAL, "energy", "forces", "stress", "virial")
    for name, value in together.items():
        np.testing.assert_allclose(
            evaluate(model, CRYSTAL, name)[name], value, rtol=1e-12, atol=1e-13
        )


def test_the_choice_depends_on_the_number_of_pull_backs(monkeypatch, tmp_path):
    monkeypatch.setenv("GNNFORCE_CACHE", str(tmp_path))  # no constants of this machine
    model = make_field("SchNet", [Head("a", members=30), Head("b")])
    graph = graph_of(water())
    one = torch.ones(1, 31, 1)
    for n, options in ((31, {}), (1, {"heads": ["b"]}), (1, {"weights": one})):
        out = model.predict(graph, ["forces"], **options)
        assert out.strategy == out.choice.used
        assert (out.strategy == "loop") is (n == 1)
        assert out.choice.requested == "auto"
        assert out.choice.passes <= n
        assert f"{out.strategy} " in out.choice.reason
    assert model.predict(graph, ["energy"]).strategy == "none"


def test_energies_of_atoms_sum_to_the_energy():
    for repulsion in (False, True):
        model = make_field("PaiNN", KINDS, repulsion=repulsion)
        graph = graph_of(water(), CRYSTAL, Atoms("H"))
        out = model.predict(graph, ["energy", "energies"], heads=["sum", "linear"])
        assert out["energies"].shape == (3, 9)
        sums = [x.sum(dim=1) for x in out["energies"].split([3, 5, 1], dim=1)]
        torch.testing.assert_close(torch.stack(sums, dim=1), out["energy"])
        with pytest.raises(UserError, match="'mean' of kind 'node_mean' has no energies"):
            model.predict(graph, ["energies"])


@pytest.mark.parametrize(
    "names", [["linear"], ["pool", "sum"], ["mean"], ["sum", "linear", "mean", "pool"]]
)
def test_some_heads_are_rows_of_all(model, names):
    wanted = ("energy", "forces", "stress")
    full = model.predict(graph_of(CRYSTAL), wanted)
    some = model.predict(graph_of(CRYSTAL), wanted, heads=names)
    for quantity in wanted:
        rows = [
            full[quantity][full.outputs.slice(head)]
            for head in model.head_names
            if head in names
        ]
        torch.testing.assert_close(
            some[quantity], torch.cat(rows), rtol=1e-12, atol=1e-14
        )
        for head in names:
            torch.testing.assert_close(
                some.head(head).members(quantity), full.head(head).members(quantity)
            )
    with pytest.raises(UnknownHeadError, match=f"has {', '.join(some.outputs.names)}"):
        some.head("other")


def test_combinations_of_outputs(model):
    """Forces of weighted sums, other weights in each graph, crystals beside molecules."""
    graph = graph_of(CRYSTAL, water(), skewed_pair())
    weights = torch.randn(2, 7, 3, dtype=torch.float64)
    forces = model.predict(graph, ["forces"], strategy="loop")["forces"]
    alone = [
        model.predict(graph_of(a), ["stress"])["stress"] for a in (CRYSTAL, skewed_pair())
    ]
    expected = torch.einsum("cna,nax->cax", weights[:, :, graph.graph_index], forces)
    for strategy in ("loop", "batched"):
        out = model.predict(
            graph, ["energy", "forces", "stress"], strategy=strategy, weights=weights
        )
        torch.testing.assert_close(out["forces"], expected, rtol=1e-11, atol=1e-12)
        assert out["energy"].shape == (7, 3)
        assert out["stress"].shape == (2, 3, 3, 3)
        assert not out["stress"][:, 1].any()
        with pytest.raises(UserError, match="of each output"):
            out.head("mean").members("forces")
        for number, stress in ((0, alone[0]), (2, alone[1])):
            mixed = torch.einsum("cn,nxy->cxy", weights[:, :, number], stress[:, 0])
            torch.testing.assert_close(out["stress"][:, number], mixed)


def test_one_pull_back_for_another_member_in_every_graph(model):
    structures = [CRYSTAL, water(), skewed_pair()]
    chosen = [4, 0, 6]
    weights = torch.zeros(1, 7, 3, dtype=torch.float64)
    for number, output in enumerate(chosen):
        weights[0, output, number] = 1
    out = model.predict(graph_of(*structures), ["forces"], weights=weights)
    rows = [
        evaluate(model, atoms)["forces"][output]
        for atoms, output in zip(structures, chosen, strict=True)
    ]
    np.testing.assert_allclose(out["forces"][0], np.concatenate(rows), atol=1e-12)


def test_members_start_apart():
    for architecture in ARCHITECTURES.values():
        heads = [Head("a", members=4), Head("b", members=4, kind="pooled")]
        fresh = ForceField(architecture(ELEMENTS, n_features=8), heads).double()
        out = fresh.predict(graph_of(CRYSTAL))
        for name in ("a", "b"):
            assert out.head(name).std("energy").item() > 1e-3
            assert out.head(name).std("forces").mean() > 1e-4


def test_members_together_equal_models_of_one_output(model):
    """Each output, evaluated by a model that has no other."""
    together = evaluate(model, CRYSTAL, "energy", "forces", "stress")
    for row, (name, member) in enumerate(
        zip(model.outputs.head_of, model.outputs.member_of, strict=True)
    ):
        alone = single_output(model, name, member)
        found = evaluate(alone, CRYSTAL, "energy", "forces", "stress")
        for quantity, value in found.items():
            np.testing.assert_allclose(
                value[0], together[quantity][row], rtol=1e-10, atol=1e-12
            )


def single_output(model, name, member):
    head = model.outputs.head(name)
    alone = ForceField(
        copy.deepcopy(model.backbone), [Head("x", kind=head.kind, hidden=head.hidden)]
    ).double()
    alone.set_references({"x": model.references()[name]})
    alone.set_scales({"x": model.scales()[name]})
    kinds = [(h.kind == "pooled", h.hidden) for h in model.heads]
    group = list(dict.fromkeys(kinds)).index((head.kind == "pooled", head.hidden))
    before = [
        h.members
        for h, kind in zip(model.heads, kinds, strict=True)
        if kind == (head.kind == "pooled", head.hidden)
        and model.head_names.index(h.name) < model.head_names.index(name)
    ]
    row = sum(before) + member
    with torch.no_grad():
        pairs = zip(
            alone.readouts.perceptrons[0].parameters(),
            model.readouts.perceptrons[group].parameters(),
            strict=True,
        )
        for own, theirs in pairs:
            own.copy_(theirs[row : row + 1])
    return alone


def test_the_head_asked_for_is_the_head_answered(tmp_path):
    """C44: by name, in the order given, and after saving."""
    model = make_field("PaiNN", THREE)
    model.set_references(
        {
            name: dict.fromkeys(ELEMENTS, e)
            for name, e in zip(["pbe", "hf", "cc"], (-10, -20, -30), strict=True)
        }
    )
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert again.head_names == ["pbe", "hf", "cc"]
    for one in (model, again):
        out = one.predict(graph_of(Atoms("H"), water()), ["energy"])
        for name, energy in (("pbe", -10.0), ("hf", -20.0), ("cc", -30.0)):
            assert out.head(name).members("energy")[0, 0] == energy
            only = one.predict(graph_of(Atoms("H")), ["energy"], heads=[name])
            assert only["energy"].tolist() == [[energy]]
        with pytest.raises(UnknownHeadError, match=r"'PBE'; .*pbe, hf, cc.*mean 'pbe'"):
            out.head("PBE")
        with pytest.raises(UnknownHeadError, match="no head 'xtb'"):
            one.predict(graph_of(Atoms("H")), ["energy"], heads=["pbe", "xtb"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"wanted": "forces"}, UserError, "must be a list of names"),
        ({"wanted": ["force"]}, UserError, "Did you mean 'forces'"),
        ({"wanted": ["dipole"]}, UserError, "unknown quantity 'dipole'"),
        ({"strategy": "batch"}, UserError, r"unknown strategy 'batch'.*'batched'"),
        ({"wanted": ["stress"]}, StressError, "graph 1 has no stress"),
        ({"wanted": ["virial"]}, StressError, "graph 1 has no stress"),
        ({"heads": []}, UserError, "at least one head"),
    ],
)
def test_requests_without_an_answer(model, options, error, message):
    options = {"wanted": ["forces"]} | options
    with pytest.raises(error, match=message):
        model.predict(graph_of(CRYSTAL, water()), **options)


def test_copies(model):
    """C55: pickle and deepcopy, before and after the first evaluation."""
    fresh = make_field(type(model.backbone).__name__, KINDS)
    twins = [copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))]
    expected = evaluate(fresh, CRYSTAL)
    twins += [copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))]
    whole = io.BytesIO()
    torch.save(fresh, whole)
    whole.seek(0)
    twins.append(torch.load(whole, weights_only=False))
    for twin in twins:
        found = evaluate(twin, CRYSTAL)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
        twin.set_references({"sum": dict.fromkeys(ELEMENTS, 5.0)})
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
    np.testing.assert_array_equal(evaluate(fresh, CRYSTAL)["energy"], expected["energy"])
    weights = sum(p.nbytes for p in fresh.parameters())
    assert len(pickle.dumps(fresh)) < weights + 60_000


def test_unlabeled_names():
    with pytest.raises(UserError, match="names of heads must differ"):
        ForceField(SchNet([1]), [Head("a"), Head("a")])
    with pytest.raises(UserError, match="at least one head"):
        ForceField(SchNet([1]), [])


def test_weights_of_another_shape_and_graphs_of_another_cutoff_are_refused():
    model = make_field()
    graph = graph_of(water(), cutoff=model.cutoff)
    for shape in [(1, model.n_outputs), (1, model.n_outputs, 2), (1, 1, 1, 1)]:
        with pytest.raises(UserError, match="weights must have the shape"):
            model.predict(graph, weights=torch.ones(shape))
    with pytest.raises(GeometryError, match="lacks neighbors"):
        model.predict(graph_of(water(), cutoff=0.5 * model.cutoff), ["energy"])
