"""Sums over neighbors written out edge by edge, and graphs to compare them on."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

CUTOFF = 3.0
N_BASIS = 4


def random_graph(n_atoms: int, n_edges: int, seed: int = 0) -> Tensor:
    """Unsorted edges of random atoms: duplicates and edges to the atom itself occur."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(n_atoms, (2, n_edges), generator=draw)


def hub_graph(n_edges: int = 200, n_atoms: int = 9) -> Tensor:
    """One atom with many edges among small ones, unsorted; the last atom has none."""
    source = torch.arange(n_edges) % (n_atoms - 1)
    target = torch.full((n_edges,), 4)
    small = random_graph(n_atoms - 1, 2 * n_atoms, seed=3)
    edges = torch.cat([torch.stack([source, target]), small], dim=1)
    order = torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(5))
    return edges[:, order].contiguous()


GRAPHS = {
    "random": (random_graph(6, 30), 6),
    "hub": (hub_graph(), 9),
    "isolated atoms": (random_graph(3, 7) + 2, 8),
    "one atom": (torch.zeros(2, 5, dtype=torch.int64), 1),
    "no edges": (torch.zeros(2, 0, dtype=torch.int64), 3),
    "nothing": (torch.zeros(2, 0, dtype=torch.int64), 0),
}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Any directed multigraph of up to nine atoms."""
    n_atoms = draw(st.integers(1, 9))
    atom = st.integers(0, n_atoms - 1)
    edges = draw(st.lists(st.tuples(atom, atom), max_size=40))
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    return index, n_atoms


def edge_vectors(n_edges: int, seed: int = 0) -> Tensor:
    """Vectors between 0.5 and 2.9 long, to be differentiated."""
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n_edges, 3, dtype=torch.float64, generator=draw)
    lengths = 0.5 + 2.4 * torch.rand(n_edges, 1, dtype=torch.float64, generator=draw)
    return (vectors / vectors.norm(dim=1, keepdim=True) * lengths).requires_grad_()


def basis(lengths: Tensor, steepness: Tensor | float = 1.0) -> Tensor:
    """Radial functions that end at the cutoff; ``(n, N_BASIS)``."""
    k = torch.arange(1, N_BASIS + 1, dtype=lengths.dtype)
    fade = (1 - lengths / CUTOFF).clamp(min=0)[:, None] ** 3
    return torch.sin(k * lengths[:, None] * steepness) * fade


def basis_slope(lengths: Tensor, steepness: Tensor | float = 1.0) -> Tensor:
    """Their derivative, by the product rule."""
    k = torch.arange(1, N_BASIS + 1, dtype=lengths.dtype) * steepness
    rest = (1 - lengths / CUTOFF).clamp(min=0)[:, None]
    phase = k * lengths[:, None]
    return k * torch.cos(phase) * rest**3 - torch.sin(phase) * 3 / CUTOFF * rest**2


def spherical(u: Tensor, degree: int) -> Tensor:
    """Harmonics as the symmetric traceless products of a unit vector's components."""
    if degree == 0:
        return torch.ones_like(u[:, :1])
    if degree == 1:
        return u
    tensor = u[:, :, None] * u[:, None, :] - torch.eye(3, dtype=u.dtype) / 3
    root = 3**0.5
    return torch.stack(
        [
            root * tensor[:, 0, 1],
            root * tensor[:, 1, 2],
            1.5 * tensor[:, 2, 2],
            root * tensor[:, 0, 2],
            root / 2 * (tensor[:, 0, 0] - tensor[:, 1, 1]),
        ],
        dim=1,
    )


def dense_sum(
    degrees: tuple[tuple[int, ...], tuple[int, ...]],
    graph: tuple[Tensor, int],
    geometry: tuple[Tensor, Tensor],
    functions: Tensor,
    sent: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Sum messages with a matrix of atoms x edges; ``functions`` is ``(n_edges, paths f)``."""
    (embed, carry), (edge_index, n_atoms) = degrees, graph
    _, directions = geometry
    source, target = edge_index
    rows = torch.arange(n_atoms)
    incidence = (rows[:, None] == target).to(functions.dtype)  # (n_atoms, n_edges)
    n_features = functions.shape[1] // (len(embed) + len(carry))
    total: dict[int, Tensor] = {}
    for number, (degree, values) in enumerate(zip([*embed, *carry], sent, strict=True)):
        columns = slice(number * n_features, (number + 1) * n_features)
        radial = functions[:, None, columns]  # (n_edges, 1, n_features)
        if number < len(embed):
            message = radial * spherical(directions, degree)[:, :, None]
            message = message * values[source][:, None, :]
        else:
            carried = values[:, None] if degree == 0 else values
            message = radial * carried[source]
        part = torch.einsum("ae,emf->amf", incidence, message)
        total[degree] = total[degree] + part if degree in total else part
    return tuple(
        total[degree][:, 0] if degree == 0 else total[degree] for degree in sorted(total)
    )


def pull_together(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Pull cotangents, outputs leading, back under ``vmap``."""

    def one(*rows: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            tuple(outputs),
            tuple(inputs),
            rows,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )

    result: tuple[Tensor, ...] = torch.func.vmap(one)(*cotangents)
    return result


def pull_in_turn(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Pull them back one after the other; zeros where nothing depends on an input."""
    rows = [
        torch.autograd.grad(
            tuple(outputs),
            tuple(inputs),
            cotangent,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        for cotangent in zip(*cotangents, strict=True)
    ]
    return tuple(torch.stack(list(column)) for column in zip(*rows, strict=True))


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor], tol: float) -> None:
    """Compare with the largest entry as scale."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        if other.numel():
            error = (one - other).detach().abs().max()
            assert error <= tol * max(1.0, float(other.detach().abs().max())), error


def cotangents_of(outputs: Sequence[Tensor], n_outputs: int) -> list[Tensor]:
    """Random cotangents of every output."""
    return [torch.randn(n_outputs, *one.shape, dtype=one.dtype) for one in outputs]
