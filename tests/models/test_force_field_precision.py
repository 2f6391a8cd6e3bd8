"""Single precision keeps energies, and nothing touches the state of the process."""

import logging
import os
import random
import warnings
import weakref

import numpy as np
import pytest
import torch
from ase import Atoms

from gnnforce.errors import UnknownElementError
from gnnforce.models.checkpoint import load
from gnnforce.testing.systems import five_elements, water

from .fields import ARCHITECTURES, ELEMENTS, KINDS, THREE, evaluate, graph_of, make_field

LARGE = {z: -1e5 - z / 7 for z in ELEMENTS}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("graph_dtype", [torch.float32, torch.float64])
def test_differences_of_large_energies(architecture, graph_dtype):
    """References of -1e5 eV an atom; float32 numbers there are 0.01 eV apart."""
    models = [make_field(architecture, dtype=d) for d in (torch.float64, torch.float32)]
    near, far = water(), water()
    far.positions[1] *= 1.1
    differences, forces = [], []
    for model in models:
        model.set_references(dict.fromkeys(model.head_names, LARGE))
        graph = graph_of(near, far, dtype=graph_dtype)
        out = model.predict(graph, ["energy", "forces", "energies"])
        assert out["energy"].dtype == out["energies"].dtype == torch.float64
        assert out["forces"].dtype == graph_dtype
        differences.append(out["energy"][:, 1] - out["energy"][:, 0])
        forces.append(out["forces"])
    torch.testing.assert_close(*differences, rtol=0, atol=1e-4)
    torch.testing.assert_close(*forces, rtol=1e-3, atol=1e-4)
    assert differences[0].abs().max() > 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_references_survive_lower_precision(dtype):
    model = make_field("SchNet")
    model.set_references(dict.fromkeys(model.head_names, LARGE))
    scales = model.scales()
    back = model.to(dtype).to(torch.float64)
    assert back.references() == dict.fromkeys(model.head_names, LARGE)
    assert back.scales() == scales
    lone = evaluate(back, Atoms("Cu"))["energy"]
    np.testing.assert_array_equal(lone, [LARGE[29]] * 3)


def test_precision_of_the_model_decides(tmp_path):
    """Weights of a float32 model, evaluated in either precision, agree."""
    model = make_field("PaiNN", KINDS, repulsion=True, dtype=torch.float32)
    model.save(tmp_path / "model.pt")
    single = load(tmp_path / "model.pt")
    double = load(tmp_path / "model.pt", dtype="float64")
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    close = five_elements()
    close.positions[0] += [0.5, 0, 0]  # within the repulsion
    one, other = evaluate(single, close), evaluate(double, close)
    np.testing.assert_allclose(one["energy"], other["energy"], rtol=0, atol=1e-3)
    np.testing.assert_allclose(one["forces"], other["forces"], rtol=1e-3, atol=1e-3)
    moved = evaluate(double.to(torch.float32).to(torch.float64), close)
    np.testing.assert_array_equal(moved["energy"], other["energy"])


def state():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "fallback": torch._C._functorch._is_vmap_fallback_enabled(),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002
        "python": random.getstate(),
        "environment": dict(os.environ),
        "warnings": list(warnings.filters),
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
    }


def test_no_side_effects(tmp_path):
    """C23: only building a model draws random numbers, and make_field puts them back."""
    before = state()
    model = make_field("PaiNN", KINDS)
    model.save(tmp_path / "model.pt")
    copies = [load(tmp_path / "model.pt", dtype=d) for d in ("float32", "float64")]
    first = [evaluate(one, water()) for one in copies]
    for strategy in ("loop", "batched"):
        for one in copies:
            one.predict(
                graph_of(water()), ["forces"], strategy=strategy, create_graph=True
            )["forces"].sum().backward()
            with pytest.raises(UnknownElementError):
                evaluate(one, Atoms("U"))
    with pytest.raises(UnknownElementError), torch.inference_mode():
        evaluate(model, Atoms("U2", [[0, 0, 0], [0, 0, 2]]), strategy="loop")
    assert state() == before
    for one, expected in zip(copies, first, strict=True):  # in turns, as at first
        found = evaluate(one, water())
        np.testing.assert_array_equal(found["energy"], expected["energy"])
        np.testing.assert_array_equal(found["forces"], expected["forces"])


@pytest.mark.parametrize("strategy", ["loop", "batched"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_memory_of_the_graph_is_freed(strategy, create_graph):
    """C48: results do not keep alive what they were made of, unless training asked."""
    model = make_field("PaiNN", THREE)
    kept = []
    handle = model.backbone.register_forward_hook(
        lambda _, inputs, __: kept.append(weakref.ref(inputs[1]))
    )
    out = model.predict(
        graph_of(water()),
        ["energy", "forces"],
        strategy=strategy,
        create_graph=create_graph,
    )
    handle.remove()
    assert len(out) == 2
    assert [ref() is not None for ref in kept] == [create_graph]
