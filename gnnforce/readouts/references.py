"""Energies of isolated atoms, and the scale of the network, per head and element."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnnforce.errors import ConfigError, UnknownHeadError, did_you_mean
from gnnforce.nn.embedding import element_name
from gnnforce.nn.exact import ExactBuffers
from gnnforce.readouts.head import Head


class AtomicReferences(ExactBuffers):
    """E0 and scale of every head and element.

    Both tables stay float64 whatever dtype the model is moved to: energies of isolated
    atoms are large, and differences of total energies are small.

    Args:
        heads: The heads of the model.
        elements: Atomic numbers of the model.
    """

    energies: Tensor
    scales: Tensor

    def __init__(self, heads: tuple[Head, ...], elements: list[int]) -> None:
        super().__init__()
        self.names = [head.name for head in heads]
        self.elements = list(elements)
        shape = (len(heads), len(elements))
        self.register_buffer("energies", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("scales", torch.ones(shape, dtype=torch.float64))

    def set_energies(self, table: Mapping[str, Mapping[int, float]]) -> None:
        """Set E0 in eV, ``{head: {atomic number: energy}}``; other heads keep theirs.

        Elements the model does not know are ignored.

        Raises:
            UnknownHeadError: For a head that does not exist.
            ConfigError: For an element of the model that is missing, or a value that
                is not finite.
        """
        for name, values in table.items():
            row = self._row(name)
            missing = [z for z in self.elements if z not in values]
            if missing:
                names = ", ".join(element_name(z) for z in missing)
                raise ConfigError(f"head {name!r} has no reference energy for {names}")
            self._fill(self.energies, row, [float(values[z]) for z in self.elements])

    def set_scales(self, table: Mapping[str, float | Mapping[int, float]]) -> None:
        """Set scales in eV, ``{head: scale}`` or ``{head: {atomic number: scale}}``.

        Raises:
            UnknownHeadError: For a head that does not exist.
            ConfigError: For a scale that is missing, not finite or not positive.
        """
        for name, value in table.items():
            row = self._row(name)
            per_element = (
                dict(value)
                if isinstance(value, Mapping)
                else dict.fromkeys(self.elements, value)
            )
            values = [float(per_element.get(z, float("nan"))) for z in self.elements]
            if any(not number > 0 for number in values):
                raise ConfigError(f"scales of head {name!r} must be positive: {value}")
            self._fill(self.scales, row, values)

    def as_dict(self, which: str) -> dict[str, dict[int, float]]:
        """Return ``"energies"`` or ``"scales"`` as ``{head: {atomic number: value}}``."""
        rows = getattr(self, which).cpu().numpy()
        return {
            name: {z: float(v) for z, v in zip(self.elements, row, strict=True)}
            for name, row in zip(self.names, rows, strict=True)
        }

    def _row(self, name: Any) -> int:  # noqa: ANN401
        if name not in self.names:
            raise UnknownHeadError(
                f"no head {name!r}; the model has {', '.join(self.names)}."
                + did_you_mean(str(name), self.names)
            )
        return self.names.index(name)

    @staticmethod
    def _fill(buffer: Tensor, row: int, values: list[float]) -> None:
        new = torch.tensor(values, dtype=torch.float64, device=buffer.device)
        if not torch.isfinite(new).all():
            raise ConfigError(f"values must be finite numbers, not {values}")
        with torch.no_grad():
            buffer[row] = new
