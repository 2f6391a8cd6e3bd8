"""``training.checkpointing``: the same training from less memory."""

import pytest
import torch

from gnnforce.training.fit import train

from .helpers import h2_frames, lengths, settings, write_frames


@pytest.mark.parametrize("draws", [1, "all"])
def test_a_run_ends_with_the_same_weights(tmp_path, draws):
    data = write_frames(tmp_path / "h2.xyz", h2_frames(lengths(10)))
    states = []
    for again in (False, True):
        config = settings(
            {"train": str(data), "valid": 0.3},
            model={"n_layers": 2, "heads": {"energy": {"members": 3, "hidden": [4]}}},
            top={"output": str(tmp_path / f"run_{again}"), "seed": 1},
            training={
                "epochs": 3,
                "checkpointing": again,
                "derivative_members": draws,
                "dtype": "float64",
            },
        )
        states.append(train(config, progress=False).model.state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-6, atol=1e-8)
