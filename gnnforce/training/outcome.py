"""The model of a run, with what it was made from."""

from gnnforce.models.force_field import ForceField
from gnnforce.training.module import TrainingModule
from gnnforce.training.preparation import Prepared
from gnnforce.training.run_files import RunFiles, read_checkpoint


def finished_model(
    module: TrainingModule, prepared: Prepared, files: RunFiles
) -> ForceField:
    """Return the model of the best epoch with its provenance."""
    model = module.average
    if files.best.is_file():
        model.load_state_dict(read_checkpoint(files.best)["average"])
    facts, best = prepared.facts, module.best
    untrained = [
        head
        for head, entry in facts["labels"].items()
        if not any(entry["counts"][name] for name in module.quantities)
    ]
    model.metadata = {
        "untrained_heads": untrained,
        "training": {
            "config": module.plain_config,
            "data": facts,
            "epoch": best.epoch,
            "steps": module.position.step,
            "seconds": round(module.position.seconds, 1),
            "validation": best.validation or None,
        },
    }
    return model.requires_grad_().to("cpu").eval()
