"""Contracts of locality: batches, images, far atoms and the cutoff."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from ase import Atoms

from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.graph.batch import batch
from gnnforce.models.force_field import ForceField
from gnnforce.testing.measure import (
    Array,
    assert_close,
    assert_same_energy,
    evaluate,
    tolerance_of,
)
from gnnforce.testing.systems import cluster, crystal


def assert_batch_equals_singles(model: ForceField) -> None:
    """A batch gives what its structures give alone, lone atoms and any order included.

    Raises:
        AssertionError: When it does not hold.
    """
    first = model.elements[0]
    lone = Atoms(numbers=[first])
    pair = Atoms(numbers=[first, first], positions=[[0, 0, 0], [0, 0, 0.9]])
    large, solid = cluster(model.elements, 9), crystal(model.elements)
    for group in ([pair, lone], [lone, pair], [lone, lone], [solid, large, lone, pair]):
        _assert_batch(model, group)


def assert_batch_members_independent(model: ForceField) -> None:
    """Moving atoms of one structure of a batch leaves the others as they were.

    Raises:
        AssertionError: When it does not hold.
    """
    kept = cluster(model.elements, 5)
    for seed in (1, 2):
        _assert_batch(model, [cluster(model.elements, 6, seed), kept])


def assert_supercell_repeats(model: ForceField) -> None:
    """A supercell has the energy of its cells, and each image the force of its atom.

    For a ``node_mean`` head the energy is that of one cell; for a ``pooled`` head only
    the equality of the images' forces is a law.

    Raises:
        AssertionError: When it does not hold.
    """
    tolerance = tolerance_of(model)
    atoms = crystal(model.elements, 2)
    one = evaluate(model, atoms, "energy", "forces", "stress")
    many = evaluate(model, atoms.repeat(2), "energy", "forces", "stress")
    images = many["forces"].reshape(model.n_outputs, 8, len(atoms), 3)
    repeated = np.broadcast_to(images[:, :1], images.shape)
    assert_close(images, repeated, tolerance, "forces of images")
    for head in model.heads:
        if head.kind == "pooled":
            continue
        cells = 8.0 if head.kind == "node_sum" else 1.0
        rows = model.outputs.slice(head.name)
        expected = {"energy": one["energy"][rows] * cells}
        expected["forces"] = np.tile(one["forces"][rows], (1, 8, 1)) * cells / 8
        expected["stress"] = one["stress"][rows] * cells / 8
        for name, value in expected.items():
            what = f"{name} of a supercell, head {head.name!r}"
            if name == "energy":
                assert_same_energy(model, many[name][rows], value, what)
            else:
                assert_close(many[name][rows], value, tolerance, what)


def assert_far_fragments_add(model: ForceField) -> None:
    """Energies of fragments beyond the cutoff add up, lone atoms in any place included.

    Only a law for ``node_sum`` heads; forces on far atoms vanish for every head.

    Raises:
        AssertionError: When it does not hold.
    """
    near = cluster(model.elements, 4)
    lone = Atoms(numbers=model.elements[:1])
    lone.positions += near.positions.max(axis=0) + 4 * model.cutoff
    alone = [evaluate(model, each) for each in (near, lone)]
    for atoms, place in ((near + lone, -1), (lone + near, 0)):
        both = evaluate(model, atoms)
        assert_close(
            both["forces"][:, place], 0 * alone[1]["forces"][:, 0], 0.0, "forces"
        )
        for head in model.heads:
            if head.kind == "node_sum":
                rows = model.outputs.slice(head.name)
                expected = alone[0]["energy"][rows] + alone[1]["energy"][rows]
                what = f"energies of far fragments, head {head.name!r}"
                assert_same_energy(model, both["energy"][rows], expected, what)


def assert_isolated_atoms_are_references(model: ForceField) -> None:
    """An isolated atom has exactly its reference energy, no force and no stress.

    Raises:
        AssertionError: When it does not hold.
    """
    references = model.references()
    for number in model.elements:
        atom = Atoms(numbers=[number])
        box = Atoms(numbers=[number], cell=20 * model.cutoff * np.eye(3), pbc=True)
        for atoms, wanted in ((atom, ["forces"]), (box, ["forces", "stress"])):
            found = evaluate(model, atoms, "energy", *wanted)
            for index, head in enumerate(model.outputs.head_of):
                expected = references[head][number]
                what = f"isolated atom {atoms.symbols[0]}, head {head!r}: energies"
                assert_close(found["energy"][index], expected, 0.0, what)
            for name in wanted:
                assert_close(found[name], 0 * found[name], 0.0, f"isolated atom: {name}")


def assert_smooth_at_cutoff(model: ForceField) -> None:
    r"""Energy, force and second derivative of a pair vanish at the cutoff.

    With the distance :math:`h` inside the cutoff the force must fall at least like
    :math:`h^2`, so that halving :math:`h` quarters it. At the cutoff there is no pair.
    Checked in float64, whatever the precision of the model.

    Raises:
        AssertionError: When it does not hold.
    """
    exact = copy.deepcopy(model).to(torch.float64)
    numbers = np.resize(np.array(model.elements), 2)
    apart = evaluate(exact, _pair(numbers, 2 * model.cutoff))
    edge = evaluate(exact, _pair(numbers, model.cutoff))
    assert_close(edge["energy"], apart["energy"], 0.0, "energies at the cutoff")
    assert_close(edge["forces"], apart["forces"], 0.0, "forces at the cutoff")
    step = 1e-3 * model.cutoff
    far, near = (
        np.abs(evaluate(exact, _pair(numbers, model.cutoff - h))["forces"]).max((1, 2))
        for h in (step, step / 2)
    )  # (n_outputs,)
    jumps = near > 0.35 * far + 1e-10
    if jumps.any():
        worst = int(np.argmax(jumps))
        raise AssertionError(
            f"output {worst}: the force of a pair is {far[worst]:.3g} at {step:g} and "
            f"{near[worst]:.3g} eV/Angstrom at {step / 2:g} Angstrom inside the cutoff, "
            "which is not smooth to second order"
        )


def _pair(numbers: Sequence[int] | Array, distance: float) -> Atoms:
    return Atoms(numbers=numbers, positions=[[0, 0, 0], [distance, 0, 0]])


def _assert_batch(model: ForceField, group: list[Atoms]) -> None:
    graphs = [AtomGraph.from_atoms(atoms, model.cutoff) for atoms in group]
    out = model.predict(batch(graphs).to(str(model.device)), ["energy", "forces"])
    start = 0
    for number, atoms in enumerate(group):
        alone = evaluate(model, atoms)
        what = f"structure {number} of a batch of {len(group)}"
        rows = slice(start, start + len(atoms))
        energies = out["energy"][:, number].cpu().numpy()
        forces = out["forces"][:, rows].cpu().numpy()
        tolerance = tolerance_of(model)
        assert_same_energy(model, energies, alone["energy"], f"{what}: energies")
        assert_close(forces, alone["forces"], tolerance, f"{what}: forces")
        start += len(atoms)
    if start != out["forces"].shape[1]:
        raise AssertionError(f"forces of {out['forces'].shape[1]} atoms, not of {start}")
