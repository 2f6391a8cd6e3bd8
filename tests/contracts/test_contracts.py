"""Every contract over every backbone and head kind, in float64; and that they can fail."""

import pytest
import torch

from gnnforce.backbones.base import BACKBONES
from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.contracts import CONTRACTS

KINDS = {
    "node_sum": [Head("a", members=2), Head("b", hidden=())],
    "node_mean": [Head("m", kind="node_mean")],
    "pooled": [Head("p", members=2, kind="pooled")],
    "mixed": [Head("s"), Head("m", kind="node_mean"), Head("p", kind="pooled")],
    "repulsion": [Head("r", members=2)],
}


@pytest.fixture(scope="module", params=["SchNet", "PaiNN"])
def backbone(request):
    return request.param


@pytest.fixture(scope="module", params=list(KINDS))
def model(request, backbone):
    torch.manual_seed(11)
    heads = KINDS[request.param]
    field = ForceField(
        BACKBONES[backbone]([1, 6, 8, 29], n_features=12, n_layers=2, cutoff=4.5),
        heads,
        repulsion=request.param == "repulsion",
    )
    field = field.to(torch.float64)
    energies = {1: -13.6, 6: -1029.0, 8: -2042.0, 29: -45000.0}
    field.set_references({head.name: energies for head in heads})
    field.set_scales({head.name: 1.7 for head in heads})
    return field


@pytest.mark.parametrize("contract", CONTRACTS)
def test_contract(model, contract):
    CONTRACTS[contract](model)


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("make", [SchNet, PaiNN])
def test_contract_in_float32(make, contract):
    torch.manual_seed(3)
    field = ForceField(make([1, 8], n_features=8, n_layers=2), [Head("a", members=2)])
    CONTRACTS[contract](field)
