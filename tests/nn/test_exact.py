import copy

import pytest
import torch
from torch import nn

from gnnforce.nn.exact import ExactBuffers

VALUE = 0.1234567890123456


class Inner(ExactBuffers):
    def __init__(self):
        super().__init__()
        self.register_buffer("exact", torch.tensor([VALUE], dtype=torch.float64))
        self.register_buffer("nothing", None)
        self.weight = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_only_buffers_keep_their_precision(dtype):
    model = nn.Sequential(Inner(), nn.BatchNorm1d(2))
    assert model.to(dtype) is model
    assert model[0].exact.item() == VALUE
    assert model[0].weight.dtype == model[1].running_mean.dtype == dtype
    back = copy.deepcopy(model).double()
    assert back[0].exact.item() == VALUE
    assert back[0].nothing is None


def test_it_follows_the_device():
    model = Inner().to("meta")
    assert model.exact.device.type == "meta"
    assert model.exact.dtype == torch.float64
