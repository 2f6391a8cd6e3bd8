import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.backbones.base import Backbone
from gnnforce.backbones.schnet import SchNet
from gnnforce.calculators.ase import Calculator
from gnnforce.calculators.settings import place_model, select_head, warn_of_charge
from gnnforce.errors import GeometryError, ModelFileError, UnknownHeadError, UserError
from gnnforce.models.force_field import ForceField
from gnnforce.ops.scatter import scatter_sum
from gnnforce.readouts.head import Head


@pytest.fixture
def model():
    return ForceField(SchNet([1, 8], n_features=4), [Head("a"), Head("b")])


def test_model_that_fits_is_shared(model):
    assert place_model(model, None, None) is model
    assert place_model(model, "cpu", "float32") is model


def test_conversion_leaves_the_original(model):
    double = place_model(model, None, torch.float64)
    assert double is not model
    assert (double.dtype, model.dtype) == (torch.float64, torch.float32)


def test_file_in_another_precision(model, tmp_path):
    model.save(tmp_path / "m.pt")
    assert place_model(str(tmp_path / "m.pt"), "cpu", "float64").dtype == torch.float64
    assert place_model(tmp_path / "m.pt", None, None).dtype == torch.float32
    with pytest.raises(ModelFileError, match="nowhere"):
        place_model(tmp_path / "nowhere.pt", None, None)


def test_heads(model):
    assert select_head(model, None) == "a"
    assert select_head(model, 1) == select_head(model, "b") == "b"
    for wrong in ("A", 2, -1):
        with pytest.raises(UnknownHeadError, match="a, b"):
            select_head(model, wrong)


def test_heads_without_training_are_refused(model):
    model.metadata["untrained_heads"] = ["a"]
    assert select_head(model, "b") == "b"
    for head in ("a", 0, None):
        with pytest.raises(UnknownHeadError, match=r"no labels.*trained heads: b"):
            select_head(model, head)


def test_wrong_types(model):
    with pytest.raises(UserError, match="int"):
        place_model(3, None, None)
    with pytest.raises(UserError, match="float16"):
        place_model(model, None, "float16")


def test_charge_warning():
    atoms = Atoms("H")
    assert not warn_of_charge(atoms)
    atoms.info["total_charge"] = 1
    with pytest.warns(UserWarning, match="charge 1"):
        assert warn_of_charge(atoms)


class Charged(Backbone):
    """Features that depend on the charge and the spin of the structure."""

    conditioned_on = ("charge", "spin_multiplicity")

    def __init__(self, elements, n_features=4, cutoff=3.0):
        super().__init__(elements, n_features, cutoff)
        self.weight = torch.nn.Parameter(torch.ones(n_features))

    def forward(self, graph, vectors):
        pair = scatter_sum(vectors.norm(dim=1), graph.edge_index[1], graph.n_atoms)
        state = (graph.charge + graph.spin_multiplicity).to(pair.dtype)
        return (pair * state[graph.graph_index])[:, None] * self.weight


@pytest.mark.filterwarnings("error")  # a conditioned model has nothing to warn of
def test_charge_and_spin_reach_a_conditioned_backbone():
    model = ForceField(Charged([1, 8]), [Head("energy")]).double()
    calculator = Calculator(model)
    atoms = Atoms("OH", [[0, 0, 0], [0.97, 0, 0]])
    energies = []
    for charge in (0, -1, np.int64(-1), -1.0):
        atoms.info["charge"] = charge
        energies.append(calculator.get_potential_energy(atoms))
    assert energies[0] != energies[1]
    assert energies[1] == energies[2] == energies[3]
    atoms.info["spin_multiplicity"] = 3
    assert calculator.get_potential_energy(atoms) != energies[1]
    atoms.info["charge"] = 0.5
    with pytest.raises(GeometryError, match="whole number"):
        calculator.get_potential_energy(atoms)
