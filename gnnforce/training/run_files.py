"""The files of a run: checkpoints written whole or not at all, and their names."""

import os
from pathlib import Path
from typing import Any

import torch

from gnnforce.errors import ModelFileError

FORMAT = "gnnforce-training"
FORMAT_VERSION = 1


class RunFiles:
    """Paths in the folder of a run.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.model = self.folder / "model.pt"
        self.best = self.folder / "best.ckpt"
        self.last = self.folder / "last.ckpt"
        self.config = self.folder / "config.yaml"
        self.history = self.folder / "metrics.csv"
        self.metrics = self.folder / "metrics.json"
        self.log = self.folder / "train.log"
        self.tensorboard = self.folder / "tensorboard"

    def remove_earlier_run(self) -> list[str]:
        """Remove files of an earlier run and return their names."""
        files = [
            self.model,
            self.best,
            self.last,
            self.config,
            self.history,
            self.metrics,
        ]
        found = [path for path in files if path.exists()]
        if self.tensorboard.is_dir():
            found += list(self.tensorboard.glob("events.out.tfevents.*"))
        for path in found:
            path.unlink()
        return [path.name for path in found]

    def remove_parts(self) -> None:
        """Remove what a process left that was killed while it wrote a checkpoint."""
        for path in (self.best, self.last):
            for part in self.folder.glob(f"{path.name}.*.part"):
                part.unlink()


def write_checkpoint(content: dict[str, Any], path: Path) -> None:
    """Write a checkpoint; one that is there stays whole until the new one is."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save(content | {"format": FORMAT, "format_version": FORMAT_VERSION}, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        ModelFileError: For a file that is missing, truncated, or no checkpoint.
    """
    if not path.is_file():
        raise ModelFileError(
            f"there is no checkpoint {path}; train without --resume first"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # bytes that are no model end in errors of any kind
        raise ModelFileError(f"{path} is no checkpoint, or is truncated") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFileError(f"{path} is no checkpoint of a training run")
    if content["format_version"] != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {content['format_version']}, this gnnforce reads "
            f"{FORMAT_VERSION}; train with the version that wrote it"
        )
    return content
