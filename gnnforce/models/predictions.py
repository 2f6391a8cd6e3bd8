"""What a force field returns."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gnnforce.derivatives.cost import Choice
from gnnforce.errors import MissingQuantityError, StatisticsError
from gnnforce.quantities import QUANTITIES
from gnnforce.readouts.head import OutputTable


class HeadPredictions:
    """The members of one head.

    Args:
        name: Of the head.
        values: Quantities of its members, members first.
    """

    def __init__(self, name: str, values: dict[str, Tensor]) -> None:
        self.name = name
        self._values = values

    def members(self, quantity: str) -> Tensor:
        """Return a quantity of every member, shape ``(members, ...)``."""
        return _pick(self._values, quantity)

    def mean(self, quantity: str) -> Tensor:
        """Return the mean over members, shape ``(...)``."""
        return self.members(quantity).mean(dim=0)

    def std(self, quantity: str) -> Tensor:
        r"""Return the standard deviation over members, per component.

        .. math:: \sigma = \sqrt{\tfrac{1}{M-1} \sum_m (x_m - \bar x)^2}

        Raises:
            StatisticsError: For a head with one member.
        """
        values = self.members(quantity)
        if values.shape[0] < 2:
            raise StatisticsError(
                f"head {self.name!r} has one member and so no standard deviation; "
                "train it with members >= 2"
            )
        return torch.std(values, dim=0, correction=1)


class Predictions(Mapping[str, Tensor]):
    """Quantities of all outputs, by name.

    Attributes:
        outputs: Which head and member each output is.
        strategy: The derivative strategy that was used; ``"none"`` without one.
        choice: How derivatives were taken: requested and used strategy, passes through
            the backbone, pieces, and the reason; None when not made by a model.

    Args:
        values: Quantities, outputs first unless ``outputs_last``.
        outputs: The table of outputs.
        strategy: The derivative strategy that was used.
        outputs_last: Give tensors with the outputs as the last axis.
        combined: Rows of derivatives are combinations of outputs, which belong to no head.
        choice: How derivatives were taken.
    """

    def __init__(
        self,
        values: dict[str, Tensor],
        outputs: OutputTable,
        strategy: str,
        *,
        outputs_last: bool = False,
        combined: bool = False,
        choice: Choice | None = None,
    ) -> None:
        self.outputs = outputs
        self.strategy = strategy
        self.choice = choice
        self._first = values
        self._outputs_last = outputs_last
        self._combined = combined

    def __getitem__(self, quantity: str) -> Tensor:
        """Return a quantity of every output."""
        value = _pick(self._first, quantity)
        return value.movedim(0, -1) if self._outputs_last else value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the quantities."""
        return iter(self._first)

    def __len__(self) -> int:
        """Number of quantities."""
        return len(self._first)

    def head(self, name: str) -> HeadPredictions:
        """Return the members of one head, members first.

        Raises:
            UnknownHeadError: Lists the heads.
        """
        rows = self.outputs.slice(name)
        own = {
            key: x[rows]
            for key, x in self._first.items()
            if not (self._combined and QUANTITIES[key].derivative)
        }
        return HeadPredictions(name, own)


def _pick(values: dict[str, Tensor], quantity: str) -> Tensor:
    if quantity not in values:
        raise MissingQuantityError(
            f"{quantity!r} was not asked for (of each output); there are "
            f"{', '.join(values)}. Name it in predict(graph, [..., {quantity!r}])"
        )
    return values[quantity]
