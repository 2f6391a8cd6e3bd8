"""What a benchmark runs on, in plain values, so that another process can build it too."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from ase import Atoms

import gnnforce.backbones  # noqa: F401  (registers the architectures)
from gnnforce.backbones.base import BACKBONES, Backbone
from gnnforce.datasets.readers import read_frames
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.errors import UserError, did_you_mean
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.checkpoint import load, parse_dtype
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head
from gnnforce.testing.workloads import workload

HIDDEN = (32,)  # of the readouts put on a backbone by name


@dataclass(frozen=True)
class Setup:
    """A backbone and structures.

    Attributes:
        workload: Name of a workload, or the path of a file of structures.
        from_file: Whether ``workload`` is a path.
        index: Which frames of the file, as in Python.
        backbone: Name of an architecture, with random weights from a fixed seed.
        sizes: Arguments of its constructor besides the elements.
        model: Path of a model file whose backbone is used instead, or None.
        dtype: ``"float32"`` or ``"float64"``; when None that of the model file, or
            float32 without one.
        device: Name of a torch device.

    Example:
        >>> model, graph = build(Setup("molecule", sizes={"n_features": 8}), 4)
        >>> model.n_outputs, graph.n_atoms
        (4, 15)
    """

    workload: str
    from_file: bool = False
    index: str = ":"
    backbone: str = "PaiNN"
    sizes: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    dtype: str | None = None
    device: str = "cpu"

    @property
    def name(self) -> str:
        """Of the workload, short."""
        return Path(self.workload).name if self.from_file else self.workload


def frames_of(setup: Setup) -> list[Atoms]:
    """Return the structures.

    Raises:
        UserError: For a workload that does not exist or a file that cannot be read.
    """
    if setup.from_file:
        return list(read_frames(Path(setup.workload), setup.index))
    return workload(setup.workload)


def build(setup: Setup, n_outputs: int) -> tuple[ForceField, AtomGraph]:
    """Make the model with one head of ``n_outputs`` members, and the batch.

    The weights of the backbone do not depend on ``n_outputs``.

    Raises:
        UserError: For an architecture, size, file, dtype or element that cannot be used.
    """
    frames = frames_of(setup)
    dtype = None if setup.dtype is None else parse_dtype(setup.dtype)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would seed devices too
        backbone, hidden = _backbone(setup, frames)
        head = Head("energy", members=n_outputs, hidden=hidden)
        own = next(backbone.parameters()).dtype
        model = ForceField(backbone, [head]).to(setup.device, dtype or own).eval()
    graph = batch_of(frames, model.cutoff, setup.device)
    model.readouts.elements.check(graph.numbers)
    return model, graph


def batch_of(frames: Sequence[Atoms], cutoff: float, device: str) -> AtomGraph:
    """Return all structures as one batch on a device."""
    joined: AtomGraph = batch([AtomGraph.from_atoms(one, cutoff) for one in frames])
    return joined.to(device)


def _backbone(setup: Setup, frames: list[Atoms]) -> tuple[Backbone, tuple[int, ...]]:
    if setup.model is not None:
        loaded = load(Path(setup.model))
        return loaded.backbone, loaded.heads[0].hidden
    if setup.backbone not in BACKBONES:
        raise UserError(
            f"there is no backbone {setup.backbone!r}; there are {', '.join(BACKBONES)}."
            + did_you_mean(setup.backbone, BACKBONES)
        )
    elements = sorted({int(z) for atoms in frames for z in atoms.numbers})
    try:
        return BACKBONES[setup.backbone](elements, **setup.sizes), HIDDEN
    except TypeError as error:
        names = ", ".join(setup.sizes)
        raise UserError(
            f"{setup.backbone} cannot be made with the sizes {names}: {error}"
        ) from error


def strategy_names(wanted: Sequence[str] | None = None) -> list[str]:
    """Return the strategies to compare, the loop first.

    Args:
        wanted: Names; every strategy and ``auto`` when None. The loop is always among
            them: it is what the others are compared with.

    Raises:
        UserError: For a strategy that does not exist.

    Example:
        >>> strategy_names(["auto"])
        ['loop', 'auto']
    """
    every = [*OF_MODELS, "auto"]
    for name in wanted or ():
        if name not in every:
            raise UserError(
                f"unknown strategy {name!r}; there are {', '.join(every)}."
                + did_you_mean(name, every)
            )
    return list(dict.fromkeys(["loop", *(wanted or every)]))


def machine(device: str = "cpu") -> dict[str, Any]:
    """Describe where something was measured.

    Returns:
        Processor, CPUs this process may use, threads of torch, device, system and
        versions, and the time (UTC).

    Example:
        >>> machine()["device"]
        'cpu'
    """
    place = torch.device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else device
    packages = ("gnnforce", "torch", "torch-geometric", "numpy")
    return {
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": name,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "matmul_precision": torch.get_float32_matmul_precision(),
        "time_utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    """Return the model of the processor as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
