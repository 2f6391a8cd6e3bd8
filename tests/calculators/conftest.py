"""A small model of three heads for the tests of calculators."""

from contextlib import contextmanager

import pytest
import torch

from gnnforce.backbones.painn import PaiNN
from gnnforce.calculators.ase import Calculator
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

BASE = {1: -13.0, 6: -38.0, 7: -54.0, 8: -75.0, 14: -100.0, 18: -120.0, 29: -150.0}


def build(heads=None, dtype=torch.float64, make=PaiNN):
    torch.manual_seed(7)
    heads = heads or [Head("pbe", members=3), Head("hf"), Head("cc")]
    model = ForceField(make(list(BASE), n_features=8, n_layers=2), heads).to(dtype)
    model.set_references(
        {h.name: {z: e * (i + 1) for z, e in BASE.items()} for i, h in enumerate(heads)}
    )
    return model


@contextmanager
def count(model):
    calls = []
    handle = model.backbone.register_forward_hook(lambda *_: calls.append(1))
    yield calls
    handle.remove()


@pytest.fixture
def make_model():
    return build


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture
def calc(model):
    return Calculator(model)


@pytest.fixture
def counting():
    return count
