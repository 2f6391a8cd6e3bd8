"""Mean absolute and root mean square errors that count only what is labeled."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph

UNITS = {
    "energy": "eV",
    "energy_per_atom": "eV/atom",
    "forces": "eV/Angstrom",
    "stress": "eV/Angstrom^3",
}
LABELED = ("energy", "forces", "stress")


class ErrorSums:
    """Sums of errors of every head, from which metrics are made at the end.

    The sums of several processes add up to those of one process.

    Args:
        heads: Names of the heads.
        device: Where the sums are kept.

    Attributes:
        sums: Absolute error, squared error and count, in float64, shape ``(n_quantities,
            3, n_heads)``.
    """

    def __init__(
        self, heads: Sequence[str], device: torch.device | str | None = None
    ) -> None:
        self.heads = list(heads)
        shape = (len(UNITS), 3, len(self.heads))
        self.sums = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, graph: AtomGraph, means: Mapping[str, Tensor]) -> None:
        """Add the errors of a batch.

        Args:
            graph: Batch with label fields.
            means: Predictions of every head, heads first: ``energy`` (n_heads, n_graphs),
                ``forces`` (n_heads, n_atoms, 3), ``stress`` (n_heads, n_graphs, 3, 3).
        """
        for quantity, predicted in means.items():
            labels = graph[f"{quantity}_labels"].transpose(0, 1)
            mask = graph[f"{quantity}_mask"].transpose(0, 1)
            error = predicted.double() - labels
            self._add(quantity, error, mask)
            if quantity == "energy":
                self._add("energy_per_atom", error / atom_counts(graph), mask)

    def metrics(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return ``{head: {quantity: {mae, rmse, count, unit}}}``.

        ``mae`` and ``rmse`` are None where nothing is labeled: no error is not a small
        error. ``count`` is the number of compared numbers.

        Example:
            >>> ErrorSums(["pbe"]).metrics()["pbe"]["forces"]
            {'mae': None, 'rmse': None, 'count': 0, 'unit': 'eV/Angstrom'}
        """
        table = self.sums.tolist()
        return {
            head: {
                quantity: _entry([row[number] for row in table[place]], unit)
                for place, (quantity, unit) in enumerate(UNITS.items())
            }
            for number, head in enumerate(self.heads)
        }

    def _add(self, quantity: str, error: Tensor, mask: Tensor) -> None:
        error = error.reshape(*mask.shape, -1)  # (n_heads, n_rows, width)
        kept = torch.where(mask[..., None], error, torch.zeros_like(error))
        place = list(UNITS).index(quantity)
        self.sums[place, 0] += kept.abs().sum(dim=(1, 2))
        self.sums[place, 1] += (kept**2).sum(dim=(1, 2))
        self.sums[place, 2] += mask.double().sum(dim=1) * error.shape[-1]


def _entry(sums: list[float], unit: str) -> dict[str, Any]:
    absolute, squared, count = sums
    if count == 0:
        return {"mae": None, "rmse": None, "count": 0, "unit": unit}
    return {
        "mae": absolute / count,
        "rmse": (squared / count) ** 0.5,
        "count": round(count),
        "unit": unit,
    }


def atom_counts(graph: AtomGraph) -> Tensor:
    """Count the atoms of every graph, float64, shape ``(n_graphs,)``."""
    ones = torch.ones(graph.n_atoms, dtype=torch.float64, device=graph.numbers.device)
    zeros = torch.zeros(graph.n_graphs, dtype=torch.float64, device=ones.device)
    return zeros.scatter_add(0, graph.graph_index, ones)


def head_weights(members: Sequence[int]) -> Tensor:
    """Return what averages outputs over the members of every head.

    Args:
        members: Number of members of every head.

    Returns:
        Shape ``(n_heads, n_outputs)``.

    Example:
        >>> head_weights([1, 2]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]
    """
    return torch.block_diag(
        *(torch.full((1, n), 1.0 / n, dtype=torch.float64) for n in members)
    )


def describe_metrics(metrics: Mapping[str, Any], name: str) -> list[str]:
    """Say the errors of every head in one line each, for people.

    Args:
        metrics: As of :meth:`ErrorSums.metrics`.
        name: Of the data, such as ``"validation"``.

    Returns:
        Lines like ``"pbe: energy 1.20 meV/atom, forces 35.0 meV/Å (RMSE)"``.

    Example:
        >>> describe_metrics(ErrorSums(["c"]).metrics(), "validation")
        ['c: no validation data']
    """
    units = {"energy_per_atom": "meV/atom", "forces": "meV/Å", "stress": "meV/Å³"}
    lines = []
    for head, entries in metrics.items():
        parts = [
            f"{quantity.removesuffix('_per_atom')} {1000 * entries[quantity]['rmse']:.4g} {u}"
            for quantity, u in units.items()
            if entries[quantity]["count"]
        ]
        text = ", ".join(parts) + " (RMSE)" if parts else f"no {name} data"
        lines.append(f"{head}: {text}")
    return lines
