"""What the loop gives, in the same precision and in float64, and how others compare."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.models.predictions import Predictions
from gnnforce.testing.agreement import (
    FORCES_TOLERANCE,
    GRADIENTS_TOLERANCE,
    differences,
    gradient_difference,
)
from gnnforce.testing.benchmark_calls import gradients_of, predict, training_step
from gnnforce.testing.benchmark_rows import Row

SAME, DOUBLE = "loop", "float64_loop"


class Reference:
    """Results of the loop for one model and batch.

    Predictions are compared for every output, or, where the loop over all of them takes
    longer than the limit, for evenly spaced ones, first and last included. Training steps
    are compared through the gradients of all parameters, and not at all where the loop
    itself was left out.

    Args:
        model: The model.
        graph: The batch.
        rows: All rows; those of the loop tell what the loop costs.
        training: Whether training steps are compared.
        max_seconds: Limit for the loop.
    """

    def __init__(
        self,
        model: ForceField,
        graph: AtomGraph,
        rows: list[Row],
        training: bool,
        max_seconds: float,
    ) -> None:
        self.model, self.graph, self.training = model, graph, training
        loops = {row.n_outputs: row for row in rows if row.strategy == "loop"}
        self.outputs = _compared(loops, model.n_outputs, max_seconds)
        own = loops[model.n_outputs]
        self.missing = "" if own.status == "measured" else f"the loop is {own.status}"
        double = deepcopy(model).double()
        self.values: dict[str, dict[str, Tensor]] = {}
        if not (training and self.missing):
            self.values = {SAME: self._loop(model), DOUBLE: self._loop(double)}

    def judge(self, row: Row, result: Predictions) -> None:
        """Fill in how a result, just computed with the model, agrees with the loop."""
        if not self.values:
            row.agreement = {"not_compared": self.missing}
            return
        if self.training:
            found = gradients_of(self.model)
            row.agreement = {
                f"gradients_from_{name}": gradient_difference(found, expected)
                for name, expected in self.values.items()
            }
            limit = GRADIENTS_TOLERANCE[self.model.dtype]
            row.agrees = row.agreement[f"gradients_from_{SAME}"] <= limit
            return
        row.agreement = self._differences(result)
        row.agrees = all(
            row.agreement[f"{quantity}_relative_from_{SAME}"]
            <= FORCES_TOLERANCE[self.model.dtype]
            for quantity in ("energy", "forces")
        )

    def _loop(self, model: ForceField) -> dict[str, Tensor]:
        if self.training:
            training_step(model, self.graph, "loop")
            gradients = gradients_of(model)
            model.zero_grad(set_to_none=True)
            return gradients
        if len(self.outputs) == model.n_outputs:
            return dict(predict(model, self.graph, "loop"))
        index = torch.tensor(self.outputs, device=model.device)
        unit = torch.eye(model.n_outputs, device=model.device).index_select(0, index)
        weights = unit[:, :, None].expand(*unit.shape, self.graph.n_graphs)
        out = model.predict(self.graph, strategy="loop", weights=weights)
        return {"energy": out["energy"], "forces": out["forces"]}

    def _differences(self, result: Predictions) -> dict[str, Any]:
        index = torch.tensor(self.outputs, device=self.model.device)
        forces = result["forces"].index_select(0, index)
        found: dict[str, Any] = {"compared_outputs": len(self.outputs)}
        for name, expected in self.values.items():
            pairs = {"energy": result["energy"], "forces": forces}
            for quantity, value in pairs.items():
                apart, relative = differences(value, expected[quantity])
                found[f"{quantity}_from_{name}"] = apart
                found[f"{quantity}_relative_from_{name}"] = relative
        return found


def _compared(loops: dict[int, Row], n_outputs: int, max_seconds: float) -> list[int]:
    """Outputs whose forces the loop can compute within the limit."""
    seconds = 3 * (loops[1].first_seconds or max_seconds)  # float64 takes twice as long
    n = min(n_outputs, max(2, int(max_seconds / seconds)))
    if n == n_outputs:
        return list(range(n_outputs))
    return [round(k * (n_outputs - 1) / (n - 1)) for k in range(n)]
