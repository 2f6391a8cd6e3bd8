import pytest
import torch

from gnnforce.backbones.painn import PaiNN
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(2)
    backbone = PaiNN([1, 8, 29], n_features=8, n_layers=1)
    return ForceField(backbone, [Head("e", members=3), Head("one")]).double()
