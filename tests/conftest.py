"""Random numbers that a test draws are its own: seeded before, put back after."""

import sys
import types
from collections.abc import Iterator

import pytest
import torch

from gnnforce.ops import scatter


@pytest.fixture(autouse=True)
def _own_random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def no_slice_loops() -> Iterator[None]:
    """Make PyTorch raise where ``vmap`` would loop over slices."""
    functorch = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    yield
    functorch._set_vmap_fallback_enabled(before)


@pytest.fixture(params=["native", "torch_scatter"])
def kernel(request, monkeypatch) -> Iterator[str]:
    """Run with each kernel; a stand-in takes the place of a missing torch-scatter."""
    monkeypatch.setenv("GNNFORCE_SCATTER", request.param)
    if request.param == "torch_scatter":
        try:
            import torch_scatter  # noqa: F401
        except (ImportError, OSError):
            monkeypatch.setitem(sys.modules, "torch_scatter", stand_in())
    scatter._kernel.cache_clear()
    yield request.param
    scatter._kernel.cache_clear()


def stand_in() -> types.ModuleType:
    """A module with the signature of torch-scatter's ``scatter``."""

    def sum_rows(values, index, dim, dim_size, reduce):
        assert (dim, reduce) == (0, "sum")
        shape = (dim_size, *values.shape[1:])
        return values.new_zeros(shape).index_add(0, index, values)

    module = types.ModuleType("torch_scatter")
    module.scatter = sum_rows
    return module
