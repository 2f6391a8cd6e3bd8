"""Measure the cost model's constants on this machine."""

import time
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from gnnforce.backbones.painn import PaiNN
from gnnforce.backbones.schnet import SchNet
from gnnforce.derivatives.constants import write_constants
from gnnforce.derivatives.cost import Constants, Rate, Workload, passes_of
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.derive import Request, workload
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

# Atoms of a molecule, molecules, outputs: from launching operations to moving memory.
SETUPS = ((5, 1, 2), (5, 1, 32), (14, 1, 2), (14, 1, 32), (14, 8, 2), (14, 8, 32))
STRATEGIES = ("loop", "batched", "chain", "forward")
LONG = 0.3  # seconds; what takes longer is measured twice only
SIDE = 512  # rows of the matrices whose product is timed


class Sample(NamedTuple):
    """The time of one strategy in one setup."""

    work: Workload
    passes: int
    seconds: float


def calibrate(
    device: str | torch.device = "cpu", *, rounds: int = 5
) -> dict[str, Constants]:
    """Measure what strategies cost on a device, and keep it for ``strategy="auto"``.

    Times forces of PaiNN and SchNet (64 features, 3 layers, float32) for a few molecules and
    numbers of outputs, strategies in turns, and fits :class:`~gnnforce.derivatives.cost.Rate` to the
    shortest times. The file it writes (:func:`~gnnforce.derivatives.constants.cache_file`)
    is read by every later process; delete it to return to the defaults. Run it on a machine
    that is otherwise idle, with as many threads as calculations will use.

    Args:
        device: Such as ``"cpu"`` or ``"cuda"``.
        rounds: Repetitions of every measurement.

    Returns:
        What was measured, by architecture; others go by ``PaiNN``.

    Raises:
        UserError: When the file cannot be written.
    """
    device = torch.device(device)
    product = product_seconds(device, rounds)
    measured = {
        architecture.__name__: Constants(rates_of(architecture, device, rounds), product)
        for architecture in (PaiNN, SchNet)
    }
    write_constants(device, measured)
    return measured


def rates_of(
    architecture: type[PaiNN | SchNet], device: torch.device, rounds: int
) -> dict[str, Rate]:
    """Measure one architecture."""
    samples: dict[str, list[Sample]] = {name: [] for name in STRATEGIES}
    for n_atoms, n_molecules, members in SETUPS:
        graph = molecules(n_atoms, n_molecules).to(str(device))
        model = made(architecture, members, device)
        seconds = timed(model, graph, rounds)
        request = Request(
            ("forces",), model.outputs, None, "auto", create_graph=False, memory=None
        )
        work = workload(model, graph, request, members)
        for name in STRATEGIES:
            taken = max(seconds[name] - seconds["energy"], 1e-6)
            samples[name].append(Sample(work, passes_of(name, work), taken))
    return {name: fitted(own, loop=name == "loop") for name, own in samples.items()}


def made(
    architecture: type[PaiNN | SchNet], members: int, device: torch.device
) -> ForceField:
    """Return a model with random weights; the caller's random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # and no device's
        model = ForceField(architecture([1, 6, 8]), [Head("energy", members=members)])
    return model.to(device=device, dtype=torch.float32).eval()


def molecules(n_atoms: int, n_molecules: int) -> AtomGraph:
    """Return copies of a random cluster in which every atom sees every other."""
    generator = torch.Generator().manual_seed(n_atoms)
    one = torch.rand(n_atoms, 3, generator=generator, dtype=torch.float64) * 2.5
    one = one + torch.arange(n_atoms, dtype=torch.float64)[:, None] * 0.02
    target = torch.arange(n_atoms).repeat_interleave(n_atoms - 1)
    source = torch.arange(n_atoms * (n_atoms - 1)) % (n_atoms - 1)
    source = source + (source >= target)
    offsets = torch.arange(n_molecules)[:, None] * n_atoms
    edges = torch.stack([(offsets + rows).flatten() for rows in (source, target)])
    n_all = n_atoms * n_molecules
    return AtomGraph(
        numbers=torch.tensor([1, 6, 8]).repeat(n_all)[:n_all],
        positions=one.repeat(n_molecules, 1),
        cell=torch.zeros(n_molecules, 3, 3, dtype=torch.float64),
        pbc=torch.zeros(n_molecules, 3, dtype=torch.bool),
        edge_index=edges,
        edge_shifts=torch.zeros(edges.shape[1], 3, dtype=torch.float64),
        charge=torch.zeros(n_molecules, dtype=torch.float64),
        spin_multiplicity=torch.ones(n_molecules, dtype=torch.float64),
        batch=torch.arange(n_molecules).repeat_interleave(n_atoms),
    )


def timed(model: ForceField, graph: AtomGraph, rounds: int) -> dict[str, float]:
    """Return the shortest time of the energy alone and of forces by every strategy.

    The shortest and not the median: whatever else runs makes times longer, never shorter.
    """
    best = dict.fromkeys(("energy", *STRATEGIES), float("inf"))
    for turn in range(rounds + 1):  # the first one warms up
        for name in best:
            if turn > 1 and best[name] > LONG:
                continue
            wait(graph.positions)
            start = time.perf_counter()
            if name == "energy":
                model.predict(graph, ["energy"])
            else:
                model.predict(graph, ["forces"], strategy=name)
            wait(graph.positions)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def wait(tensor: Tensor) -> None:
    """Wait until a tensor's device has done what it was given."""
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)


def product_seconds(device: torch.device, rounds: int) -> float:
    """Return the time of one multiplication and addition in a matrix product."""
    matrix = torch.ones(SIDE, SIDE, device=device)
    best = float("inf")
    for _ in range(rounds + 1):
        wait(matrix)
        start = time.perf_counter()
        matrix @ matrix
        wait(matrix)
        best = min(best, time.perf_counter() - start)
    return best / SIDE**3


def fitted(samples: list[Sample], *, loop: bool) -> Rate:
    r"""Fit the four numbers of a rate to times, none of them negative.

    Least squares of the relative errors, :math:`\\sum_s (1 - t(a, b, c, d) / t_s)^2`, over
    every choice of numbers that are zero: of the fits without a negative number the best.

    Args:
        samples: Measured times.
        loop: There is no start: every pull-back is the first.
    """
    rows = torch.tensor(
        [
            [
                value / sample.seconds
                for value in (
                    sample.work.n_layers,
                    sample.work.size,
                    sample.passes * sample.work.n_layers,
                    sample.passes * sample.work.size,
                )
            ]
            for sample in samples
        ],
        dtype=torch.float64,
    )
    free = (2, 3) if loop else (0, 1, 2, 3)
    best, least = torch.zeros(4, dtype=torch.float64), float("inf")
    for n_used in range(1, len(free) + 1):
        for used in combinations(free, n_used):
            part = rows[:, list(used)]
            scale = part.norm(dim=0)
            found = torch.linalg.lstsq(part / scale, torch.ones(len(rows), 1).double())
            numbers = found.solution[:, 0] / scale
            error = float((part @ numbers - 1).square().sum())
            if bool((numbers >= 0).all()) and error < least:
                best, least = torch.zeros(4, dtype=torch.float64), error
                best[list(used)] = numbers
    return Rate(*best.tolist())
