"""Contracts of derivatives: forces and stress are those of the energy, and safe to use."""

import copy
import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from ase import Atoms

from gnnforce.errors import StressError, UnknownElementError, UserError
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.derive import options_of
from gnnforce.models.force_field import ForceField
from gnnforce.testing.measure import (
    Array,
    assert_close,
    evaluate,
    strained,
    tolerance_of,
)
from gnnforce.testing.systems import cluster, crystal

_FIELDS = ("numbers", "positions", "cell", "pbc", "edge_index", "edge_shifts")
_DIFFERENCE = 1e-6  # error of central differences allowed in float64
_STEP, _STRAIN = 2e-4, 1e-4


def assert_forces_are_gradients(model: ForceField) -> None:
    """Forces equal minus the central differences of the energy, for every output.

    A float32 model is compared with its own float64 copy, for which the differences are
    taken: in float32 they would drown in rounding.

    Raises:
        AssertionError: When it does not hold.
    """
    exact = copy.deepcopy(model).to(torch.float64)
    for atoms in (cluster(model.elements, 5), crystal(model.elements)):
        forces = evaluate(exact, atoms)["forces"]
        for index in np.ndindex(len(atoms), 3):
            slope = _central(partial(_moved, atoms, index), exact, _STEP)
            what = f"forces and differences, atom and axis {index}"
            assert_close(forces[:, *index], -slope, _DIFFERENCE, what)
        own = evaluate(model, atoms)["forces"]
        assert_close(own, forces, tolerance_of(model), "forces and those in float64")


def assert_stress_is_gradient(model: ForceField) -> None:
    r"""Stress is :math:`\partial E/\partial\epsilon / V`, symmetric; virial is ``-V S``.

    Raises:
        AssertionError: When it does not hold.
    """
    exact = copy.deepcopy(model).to(torch.float64)
    atoms = crystal(model.elements)
    out = evaluate(exact, atoms, "energy", "stress", "virial")
    volume = atoms.get_volume()
    for i, j in ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)):
        direction = np.zeros((3, 3))
        direction[i, j] += 0.5
        direction[j, i] += 0.5
        slope = _central(partial(_bent, atoms, direction), exact, _STRAIN)
        what = f"stress and differences, component {i}{j}"
        assert_close(out["stress"][:, i, j], slope / volume, _DIFFERENCE, what)
    transposed = out["stress"].transpose(0, 2, 1)
    assert_close(out["stress"], transposed, 1e-12, "stress and its transpose")
    assert_close(out["virial"], -volume * out["stress"], 1e-10, "virial and -V S")
    own = evaluate(model, atoms, "stress")["stress"]
    assert_close(own, out["stress"], tolerance_of(model), "stress and that in float64")


def assert_no_net_force(model: ForceField) -> None:
    """Forces sum to zero, and so do torques of an open structure.

    Raises:
        AssertionError: When it does not hold.
    """
    tolerance = tolerance_of(model)
    for atoms in (cluster(model.elements), crystal(model.elements)):
        forces = evaluate(model, atoms)["forces"]
        total = forces.sum(axis=1)
        assert_close(total, 0 * total, tolerance, "sums of forces and zero")
        if not atoms.pbc.any():
            torque = np.cross(atoms.positions[None], forces).sum(axis=1)
            assert_close(torque, 0 * torque, tolerance, "sums of torques and zero")


def assert_strategies_agree(model: ForceField) -> None:
    """Every derivative strategy gives the forces and stress of the loop.

    One that needs a rule which an operation of the backbone lacks may be refused in words;
    ``auto`` must find one that works.

    Raises:
        AssertionError: When it does not hold.
    """
    atoms = crystal(model.elements, 4)
    wanted = ("forces", "stress")
    loop = evaluate(model, atoms, *wanted, strategy="loop")
    for strategy in (*options_of(model.backbone), "auto"):
        try:
            found = evaluate(model, atoms, *wanted, strategy=strategy)
        except UserError:
            if strategy in ("loop", "auto"):
                raise
            continue
        for name in wanted:
            tolerance = 1e-12 if model.dtype == torch.float64 else tolerance_of(model)
            assert_close(found[name], loop[name], tolerance, f"{name} by {strategy}")


def assert_molecules_have_no_stress(model: ForceField) -> None:
    """Asking for the stress of an open structure is refused.

    Raises:
        AssertionError: When it does not hold.
    """
    try:
        evaluate(model, cluster(model.elements), "stress")
    except StressError:
        return
    raise AssertionError("the stress of a molecule was not refused")


def assert_unknown_elements_refused(model: ForceField) -> None:
    """Elements the model never saw are refused, and refusing leaves no trace.

    Raises:
        AssertionError: When it does not hold.
    """
    known = cluster(model.elements)
    before = evaluate(model, known)["energy"]
    for number in (0, 118, max(model.elements) - 1):
        if number in model.elements:
            continue
        try:
            evaluate(
                model,
                Atoms(numbers=[number, model.elements[0]], positions=2 * np.eye(3)[:2]),
            )
        except UnknownElementError:
            continue
        raise AssertionError(f"the unknown atomic number {number} was not refused")
    after = evaluate(model, known)["energy"]
    assert_close(after, before, 0.0, "energies before and after a refusal")


def assert_evaluation_leaves_no_trace(model: ForceField) -> None:
    """Input is not changed, results are detached, ``no_grad`` changes nothing.

    Raises:
        AssertionError: When it does not hold.
    """
    graph = AtomGraph.from_atoms(crystal(model.elements), model.cutoff)
    graph = graph.to(str(model.device))
    before = {name: graph[name].clone() for name in _FIELDS}
    wanted = ["energy", "forces", "stress"]
    plain = model.predict(graph, wanted)
    for name in _FIELDS:
        if graph[name].requires_grad or not torch.equal(graph[name], before[name]):
            raise AssertionError(f"evaluating changes the graph's {name}")
    if any(value.requires_grad for value in plain.values()):
        raise AssertionError("results are attached to the autograd graph")
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise AssertionError("evaluating leaves gradients on parameters")
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            inside = model.predict(graph, wanted)
        for name in wanted:
            what = f"{name} inside {context.__name__}"
            assert_close(inside[name].cpu(), plain[name].cpu(), 0.0, what)


def assert_parameters_learn_from_forces(model: ForceField) -> None:
    """A loss on forces reaches every parameter that the energy depends on.

    Raises:
        AssertionError: Naming the parameters without a finite gradient.
    """
    own = copy.deepcopy(model)
    atoms = cluster(own.elements, 8)
    graph = AtomGraph.from_atoms(atoms, own.cutoff).to(str(own.device))
    own.zero_grad()
    own.predict(graph, ["energy"], create_graph=True)["energy"].sum().backward()
    used = [n for n, p in own.named_parameters() if p.grad is not None and p.grad.any()]
    own.zero_grad()
    forces = own.predict(graph, ["forces"], create_graph=True)["forces"]
    (forces**2).sum().backward()
    gradients = {name: p.grad for name, p in own.named_parameters()}
    for name in used:
        gradient = gradients[name]
        if gradient is None or not torch.isfinite(gradient).all():
            raise AssertionError(f"a loss on forces gives {name} the gradient {gradient}")


def assert_copies_agree(model: ForceField) -> None:
    """``deepcopy`` and ``pickle`` give models with the same results, not shared ones.

    Raises:
        AssertionError: When it does not hold.
    """
    atoms = cluster(model.elements)
    expected = evaluate(model, atoms)
    pickled = pickle.loads(pickle.dumps(model))
    for name, twin in (("deepcopy", copy.deepcopy(model)), ("pickle", pickled)):
        found = evaluate(twin, atoms)
        for key, value in expected.items():
            assert_close(found[key], value, 0.0, f"{key} of a {name}")
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(2.0)
    after = evaluate(model, atoms)["energy"]
    assert_close(after, expected["energy"], 0.0, "energies after a copy was changed")


def _moved(atoms: Atoms, index: tuple[int, ...], step: float) -> Atoms:
    moved: Atoms = atoms.copy()
    moved.positions[index] += step
    return moved


def _bent(atoms: Atoms, direction: Array, strain: float) -> Atoms:
    return strained(atoms, strain * direction)


def _central(at: Callable[[float], Atoms], model: ForceField, step: float) -> Array:
    """Return the slope of every energy by central differences of fourth order."""
    ahead, behind, far_ahead, far_behind = (
        evaluate(model, at(h), "energy")["energy"]
        for h in (step, -step, 2 * step, -2 * step)
    )
    slope: Array = (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * step)
    return slope
