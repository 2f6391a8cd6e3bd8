from dataclasses import replace

import pytest

from gnnforce.derivatives.cost import (
    DEFAULTS,
    REFERENCE,
    Constants,
    Rate,
    Workload,
    choose,
    engine_of,
    estimate,
    passes_of,
    row_bytes,
    rows_per_piece,
)
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UserError

PAINN = DEFAULTS[REFERENCE]
MOLECULE = Workload(64, 15, 184, 64, 3, 64, 45, OF_MODELS, OF_MODELS)
RATE = Rate(1.0, 0.0, 0.0, 0.0)


def test_the_formula_by_hand():
    work = Workload(10, 7, 30, 4, 2, 3, 21, memory=10**12)
    size = 2 * 4 * (30 + 8 * 7)
    assert work.size == size
    assert replace(work, itemsize=8).size == 2 * size
    rate = Rate(1.0, 0.01, 0.1, 0.001)
    constants = Constants(
        {"loop": rate, "batched": rate, "chain": RATE, "forward": rate}, product=0.5
    )
    row = 2 * 0.1 + size * 0.001
    start = 2 * 1.0 + size * 0.01
    assert estimate("loop", work, constants) == pytest.approx(10 * row)
    assert estimate("batched", work, constants) == pytest.approx(start + 10 * row)
    assert estimate("jacobian", work, constants) == pytest.approx(
        start + 3 * row + 10 * 3 * 3 * 7 * 0.5
    )
    assert estimate("forward", work, constants) == pytest.approx(
        start + 21 * row + 10 * 21 * 7 * 4 * 0.5
    )
    tight = replace(work, memory=4 * row_bytes("batched", work))
    assert rows_per_piece("batched", tight) == 4
    assert estimate("batched", tight, constants) == pytest.approx(3 * start + 10 * row)


def test_passes():
    work = replace(MOLECULE, n_pooled=40)
    assert [passes_of(name, work) for name in OF_MODELS] == [64, 64, 64, 40, 45]
    assert engine_of("jacobian", work) == "chain"
    assert engine_of("jacobian", replace(work, options=("loop", "batched"))) == "batched"
    assert engine_of("forward", work) == "forward"


@pytest.mark.parametrize("strategy", OF_MODELS)
def test_bytes_grow_with_the_system_and_a_kept_graph(strategy):
    small = row_bytes(strategy, MOLECULE)
    assert row_bytes(strategy, replace(MOLECULE, n_edges=10_000)) > small > 0
    assert small < row_bytes(strategy, replace(MOLECULE, itemsize=8)) <= 2 * small
    kept = row_bytes(strategy, replace(MOLECULE, create_graph=True))
    assert kept > small


def test_auto_follows_the_constants():
    free = Rate(0.0, 0.0, 0.0, 0.0)
    for cheap in ("loop", "batched", "chain", "forward"):
        rates = dict.fromkeys(PAINN.rates, Rate(1.0, 0.0, 1.0, 0.0)) | {cheap: free}
        constants = Constants(rates, product=0.0)
        used, reason = choose("auto", MOLECULE, constants)
        assert used == cheap
        assert reason.startswith("least estimated time of loop ")
        assert f"{cheap} 0 ms" in reason


def test_jacobian_is_considered_where_it_saves_pull_backs():
    _, reason = choose("auto", MOLECULE, PAINN)
    assert "jacobian" not in reason
    wide = replace(MOLECULE, n_rows=1000, n_pooled=64, n_atoms=1000, n_edges=50_000)
    wide = replace(wide, n_directions=3000)
    assert choose("auto", wide, PAINN)[0] == "jacobian"


def test_auto_takes_only_what_is_trusted():
    work = replace(MOLECULE, automatic=("loop",))
    assert choose("auto", work, PAINN)[0] == "loop"
    assert choose("forward", work, PAINN) == ("forward", "asked for")


def test_one_row_of_a_large_system_needs_no_vectorization():
    one = Workload(1, 1000, 50_000, 64, 3, 1, 3000, OF_MODELS, OF_MODELS)
    assert choose("auto", one, PAINN)[0] in ("loop", "chain")
    assert choose("auto", replace(one, n_rows=64, n_pooled=64), PAINN)[0] == "chain"


def test_refused():
    work = replace(MOLECULE, options=("loop", "batched"))
    with pytest.raises(UserError, match="this model does not support strategy 'chain'"):
        choose("chain", work, PAINN)
    with pytest.raises(UserError, match=r"unknown strategy 'lop'.*mean 'loop'"):
        choose("lop", work, PAINN)
