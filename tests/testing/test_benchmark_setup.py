import pytest
import torch
from ase.build import molecule
from ase.io import write

from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UnknownElementError, UserError
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.benchmark_setup import (
    Setup,
    build,
    frames_of,
    machine,
    processor,
    strategy_names,
)

SMALL = {"n_features": 4, "n_layers": 1}


def test_weights_are_the_same_for_every_number_of_outputs_and_nobody_elses():
    state = torch.random.get_rng_state()
    one, graph = build(Setup("molecule", sizes=SMALL), 1)
    four, _ = build(Setup("molecule", sizes=SMALL), 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in one.backbone.state_dict().items():
        assert torch.equal(value, four.backbone.state_dict()[name])
    assert (one.n_outputs, four.n_outputs, graph.n_atoms) == (1, 4, 15)
    assert (one.dtype, one.elements) == (torch.float32, [1, 6, 8])


def test_structures_from_a_file(tmp_path):
    write(tmp_path / "a.xyz", [molecule("H2O"), molecule("CH4")])
    setup = Setup(str(tmp_path / "a.xyz"), from_file=True, index="1:", sizes=SMALL)
    assert [len(atoms) for atoms in frames_of(setup)] == [5]
    assert setup.name == "a.xyz"
    assert build(setup, 2)[0].elements == [1, 6]


def test_the_backbone_of_a_model_file(tmp_path):
    backbone = SchNet([1, 6, 8], n_features=4, n_layers=1)
    model = ForceField(backbone, [Head("a", hidden=(5, 3)), Head("b")]).double()
    model.save(tmp_path / "model.pt")
    setup = Setup("molecule", model=str(tmp_path / "model.pt"))
    made, _ = build(setup, 3)
    assert (made.dtype, made.heads) == (
        torch.float64,
        (Head("energy", members=3, hidden=(5, 3)),),
    )
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, made.backbone.state_dict()[name])
    single = Setup("molecule", model=str(tmp_path / "model.pt"), dtype="float32")
    assert build(single, 1)[0].dtype == torch.float32
    with pytest.raises(UnknownElementError, match="Si"):
        build(Setup("periodic", model=str(tmp_path / "model.pt")), 1)


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        (Setup("molecule", backbone="Schnet"), "Did you mean 'SchNet'"),
        (Setup("molecule", sizes={"n_features": 0}), "n_features"),
        (Setup("molecule", sizes={"depth": 2}), "depth"),
        (Setup("molecule", dtype="float16"), "float32 or float64"),
        (Setup("moleculle"), "Did you mean 'molecule"),
    ],
)
def test_what_cannot_be_built(setup, message):
    with pytest.raises(UserError, match=message):
        build(setup, 1)


def test_every_strategy_takes_part():
    assert strategy_names() == ["loop", *(n for n in OF_MODELS if n != "loop"), "auto"]
    assert strategy_names(["auto", "loop", "auto"]) == ["loop", "auto"]
    with pytest.raises(UserError, match="Did you mean 'batched'"):
        strategy_names(["batchd"])


def test_description_of_the_machine():
    found = machine()
    assert found["threads"] == torch.get_num_threads()
    assert found["versions"]["torch"] == torch.__version__
    assert found["cpus"] >= 1
    assert processor()
