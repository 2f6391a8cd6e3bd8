"""Every strategy gives what the loop gives, on structures that nobody chose."""

import hypothesis.strategies as draw
import numpy as np
import pytest
import torch
from ase import Atoms
from hypothesis import given, settings

from gnnforce.models.derive import options_of
from gnnforce.readouts.head import Head

from .fields import graph_of, make_field
from .plain import PlainTorch

CUTOFF = 3.2
HEADS = (
    Head("sum", members=2),
    Head("flat", members=9, kind="node_mean", hidden=()),
    Head("pool", members=9, kind="pooled"),
)
SYSTEMS = draw.lists(
    draw.tuples(
        draw.integers(0, 6),  # atoms
        draw.integers(0, 2**32 - 1),  # seed
        draw.booleans(),  # periodic
    ),
    min_size=1,
    max_size=4,
)


def structure(n_atoms, seed, periodic):
    """Atoms at random places, none closer than 0.5 Angstrom."""
    generator = np.random.default_rng(seed)
    cell = np.diag(generator.uniform(2.5, 6.0, 3)) + generator.uniform(-0.5, 0.5, (3, 3))
    places = []
    for _ in range(50 * n_atoms):
        place = generator.uniform(0, 1, 3) @ cell
        if len(places) < n_atoms and all(
            np.linalg.norm(place - other) > 0.5 for other in places
        ):
            places.append(place)
    numbers = generator.choice([1, 6, 7, 8], len(places))
    return Atoms(numbers, np.reshape(places, (-1, 3)), cell=cell, pbc=periodic)


@pytest.fixture(scope="module", params=["PaiNN", "SchNet", PlainTorch])
def model(request):
    return make_field(request.param, HEADS, cutoff=CUTOFF, repulsion=True)


def close(found, expected):
    size = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * max(size, 1e-3))


@settings(max_examples=25, deadline=None)
@given(systems=SYSTEMS)
def test_random_batches(model, systems):
    graph = graph_of(*(structure(*one) for one in systems), cutoff=CUTOFF)
    weights = torch.ones(model.n_outputs, model.n_outputs, graph.n_graphs).tril().double()
    for options in ({}, {"weights": weights}):
        wanted = ["forces", "stress"] if options else ["forces"]
        expected = model.predict(graph, wanted, strategy="loop", **options)
        for strategy in options_of(model.backbone)[1:]:
            found = model.predict(graph, wanted, strategy=strategy, **options)
            for name, value in expected.items():
                close(found[name], value)
