import torch
from torch import nn

from gnnforce.training.averaging import update_average


def test_average_is_the_documented_mean():
    model, average = nn.Linear(2, 2).double(), nn.Linear(2, 2).double()
    average.load_state_dict(model.state_dict())
    expected = model.weight.detach().clone()
    for step in range(30):
        with torch.no_grad():
            model.weight += 1.0
        update_average(average, model, 0.6, step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    assert torch.allclose(average.weight, expected, rtol=1e-13)


def test_average_of_equal_weights_is_those_weights():
    model, average = nn.Linear(3, 1), nn.Linear(3, 1)
    average.load_state_dict(model.state_dict())
    update_average(average, model, 0.99, 5)
    assert torch.equal(average.weight, model.weight)
