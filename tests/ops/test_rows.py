import pytest
import torch

from gnnforce.ops import rows
from gnnforce.ops.rows import (
    constant,
    contract,
    features_first,
    outer,
    outputs_first,
    pieces,
    plus_outer,
    plus_product,
    pull_matrix,
    times,
)

F, N, OUT = 4, 5, 3


def draw(*shape):
    return torch.randn(shape, dtype=torch.float64)


@pytest.fixture(params=[False, True], ids=["in place", "recorded"])
def recorded(request):
    with torch.set_grad_enabled(request.param):
        yield request.param


@pytest.mark.parametrize("shape", [(OUT, N, F), (OUT, N, 3, F)])
def test_order_of_axes(shape):
    g = draw(*shape)
    first = features_first(g)
    assert first.shape == (F, *shape[1:-1], OUT)
    assert first.is_contiguous()
    for f in range(F):
        for n in range(OUT):
            assert torch.equal(first[f, ..., n], g[n, ..., f])
    assert torch.equal(outputs_first(first), g)
    assert features_first(outputs_first(first)).data_ptr() == first.data_ptr()


@pytest.mark.parametrize("shape", [(N, F), (N, 3, F)])
def test_what_does_not_depend_on_the_output(shape):
    x = draw(*shape)
    assert constant(x).shape == (F, *shape[:-1], 1)
    assert torch.equal(constant(x), features_first(x[None]))
    assert constant(x).is_contiguous()


@pytest.mark.usefixtures("recorded")
def test_products_and_sums():
    g, a, b = draw(F, N, OUT), draw(F, N, OUT), draw(F, N, 1)
    v, u = draw(F, N, 3, OUT), draw(F, N, 3, 1)
    torch.testing.assert_close(times(g.clone(), b), g * b)
    torch.testing.assert_close(plus_product(g.clone(), a, b), g + a * b)
    expected = torch.einsum("fncm,fnc->fnm", v, u[..., 0])
    torch.testing.assert_close(contract(v, u), expected)
    expected = torch.einsum("fnm,fnc->fncm", g, u[..., 0])
    torch.testing.assert_close(outer(g, u), expected)
    torch.testing.assert_close(plus_outer(v.clone(), g, u), v + expected)


def test_only_temporaries_are_overwritten(recorded):
    """What is documented to change in place does; everything else is left as it was."""
    g, a, b = draw(F, N, OUT), draw(F, N, OUT), draw(F, N, 1)
    v, u = draw(F, N, 3, OUT), draw(F, N, 3, 1)
    given = [one.clone() for one in (a, b, u)]
    contract(v, u)
    outer(g, u)
    for function, total, rest in (
        (times, g, (b,)),
        (plus_product, g, (a, b)),
        (plus_outer, v, (a, u)),
    ):
        before = total.clone()
        result = function(total, *rest)
        assert (result.data_ptr() == total.data_ptr()) is not recorded
        assert torch.equal(total, before) is recorded
    for one, other in zip((a, b, u), given, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("sizes", [(6,), (1, 2, 3), (2, 4)])
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("shape", [(N, OUT), (N, 3, OUT)])
def test_transposed_matrix_in_parts(sizes, start, shape):
    weight, parts = draw(6, F), [draw(size, *shape) for size in sizes]
    begin = draw(F, *shape) if start else None
    given = None if begin is None else begin.clone()
    expected = torch.tensordot(weight, torch.cat(parts), dims=([0], [0]))
    if given is not None:
        expected = expected + given
        torch.testing.assert_close(pull_matrix(weight, parts, begin), expected)
        assert torch.equal(begin, given)
    torch.testing.assert_close(pull_matrix(weight, parts, begin), expected)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("shape", [(N, OUT), (N, 3, OUT)])
def test_a_slice_of_atoms_is_written(start, shape):
    weight, parts = draw(6, F), [draw(2, *shape), draw(4, *shape)]
    cut = slice(1, 4)
    some = [part[:, cut] for part in parts]
    begin = draw(F, *shape) if start else None
    out = torch.full((F, *shape), 7.0, dtype=torch.float64)
    with torch.no_grad():
        begun = None if begin is None else begin[:, cut]
        pull_matrix(weight, some, begun, out[:, cut])
        expected = pull_matrix(weight, parts, begin)
    torch.testing.assert_close(out[:, cut], expected[:, cut])
    assert (out[:, [0, 4]] == 7.0).all()


@pytest.mark.usefixtures("recorded")
def test_no_atoms_and_no_outputs():
    for shape in ((0, OUT), (N, 0), (0, 3, 0)):
        parts = [draw(2, *shape), draw(4, *shape)]
        assert pull_matrix(draw(6, F), parts).shape == (F, *shape)


def test_pieces_cover_every_atom_once(monkeypatch):
    monkeypatch.setattr(rows, "CACHE_BYTES", 100)
    for n_atoms in (0, 1, 9, 10, 11):
        with torch.no_grad():
            cuts = list(pieces(n_atoms, 10, whole=False))
        covered = [k for cut in cuts for k in range(n_atoms)[cut]]
        assert covered == list(range(n_atoms))
        assert max(cut.stop - cut.start for cut in cuts) <= 10
    with torch.no_grad():
        assert list(pieces(3, 1000, whole=False)) == [slice(k, k + 1) for k in range(3)]
        assert list(pieces(30, 1000, whole=True)) == [slice(0, 30)]
        assert list(pieces(0, 0, whole=False)) == [slice(0, 0)]
    with torch.enable_grad():
        assert list(pieces(30, 1000, whole=False)) == [slice(0, 30)]
