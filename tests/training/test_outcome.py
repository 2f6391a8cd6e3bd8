import torch

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.checkpoint import load
from gnnforce.training.fit import train
from gnnforce.training.run_files import read_checkpoint

from .helpers import h2, h2_frames, lengths, settings, write_frames


def test_the_model_is_the_average_of_the_best_epoch(tmp_path):
    data = write_frames(tmp_path / "d.xyz", h2_frames(lengths(8)))
    top = {"output": str(tmp_path / "run")}
    config = settings(
        {"train": str(data), "valid": 0.25}, training={"epochs": 3}, top=top
    )
    result = train(config, progress=False)
    best = read_checkpoint(tmp_path / "run" / "best.ckpt")["average"]
    assert all(
        torch.equal(value, best[n]) for n, value in result.model.state_dict().items()
    )
    assert not result.model.training
    assert all(p.requires_grad for p in result.model.parameters())
    graph = AtomGraph.from_atoms(h2(), 3.0)
    saved = load(result.model_path)
    assert torch.equal(
        saved.predict(graph)["forces"], result.model.predict(graph)["forces"]
    )
    facts = saved.metadata["training"]
    assert facts["config"]["seed"] == 0
    assert facts["epoch"] == result.metrics["best_epoch"]
    assert facts["data"]["n_valid"] == 2
    assert facts["validation"] == result.metrics["validation"]
    assert facts["data"]["labels"]["energy"]["keys"]["energy"]
