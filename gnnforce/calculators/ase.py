"""A force field as a calculator of ASE."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import PropertyNotImplementedError, all_changes
from ase.outputs import Properties, all_outputs
from numpy.typing import NDArray

from gnnforce.calculators.results import COMMITTEE_PROPERTIES, Results, ase_results
from gnnforce.calculators.settings import (
    place_model,
    select_head,
    state_of,
    warn_of_charge,
)
from gnnforce.calculators.skin import SkinList
from gnnforce.calculators.threads import check_threads, thread_limit
from gnnforce.derivatives.strategies import check_strategy
from gnnforce.errors import UserError, did_you_mean
from gnnforce.graph.views import has_stress
from gnnforce.models.force_field import ForceField

_SETTINGS = ("head", "device", "dtype", "strategy", "threads")


class Calculator(AseCalculator):
    r"""Energies, forces and stress of one head, with error bars where it has members.

    One geometry costs one forward pass: everything is computed at the first question
    and kept until numbers, positions, ``pbc`` or (when periodic) the cell change.
    Constraints, masses, tags, momenta, ``initial_charges`` and ``initial_magmoms`` are
    not read, and changing them computes nothing.

    ========================= ======================== =====================================
    key                       shape                    meaning
    ========================= ======================== =====================================
    energy, free_energy       float                    eV; the two are equal
    energies                  (n_atoms,)               eV, sum to the energy; ``node_sum``
    forces                    (n_atoms, 3)             eV/Angstrom
    stress                    (6,)                     eV/Angstrom^3: xx yy zz yz xz xy,
                                                       negative under compression
    energy_std                float                    \
    forces_std, stress_std    like forces, stress      per component, ``ddof=1``
    energy_members            (n_members,)             \
    forces_members            (n_members, n_atoms, 3)  \
    stress_members            (n_members, 6)           \
    ========================= ======================== =====================================

    For a head with several members (a committee) the first four are the mean. The keys
    below exist for committees only; they are in ``results`` and answered by
    ``get_property``, but are not listed in ``implemented_properties``, which holds names
    of ASE. A structure without a stress (no periodic direction, or no volume) has no
    ``stress`` keys, and asking for it raises ``PropertyNotImplementedError``. Non-finite
    predictions raise ``ase.calculators.calculator.CalculationFailed``. After any failure
    ``results`` is empty.

    The model is shared with the caller, not copied, unless device or dtype ask for
    another one than it has. A copy of the calculator (``deepcopy``, ``pickle``) is
    independent of the original.

    Args:
        model: A file written by ``ForceField.save``, or the model itself.
        head: Name of the head, or its number in ``model.head_names``; ``None`` takes the
            model's only head, or its first if it has several.
        device: Where to compute; ``None`` leaves a model where it is and loads a file to
            the CPU.
        dtype: ``"float64"`` or ``"float32"``; ``None`` keeps the model's own.
        strategy: How derivatives are taken; see ``ForceField.predict``.
        skin: In Angstrom; neighbor lists are reused until an atom has moved half of it.
            Results do not depend on it.
        threads: Threads of torch during an evaluation; ``None`` leaves the caller's
            setting. A process made by ``fork`` always uses one.

    Raises:
        UserError: For a file, head, dtype, strategy, skin or threads that do not exist
            or make no sense.

    Example:
        >>> from ase.build import molecule
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> model = ForceField(SchNet([1, 8]), [Head("energy", members=4)])
        >>> atoms = molecule("H2O")
        >>> atoms.calc = Calculator(model)
        >>> atoms.get_forces().shape, atoms.calc.results["forces_members"].shape
        ((3, 3), (4, 3, 3))
    """

    ignored_changes = {"initial_charges", "initial_magmoms"}  # noqa: RUF012  (ASE's)

    def __init__(
        self,
        model: str | Path | ForceField,
        head: str | int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        *,
        strategy: str = "auto",
        skin: float = 0.0,
        threads: int | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = place_model(model, device, dtype)
        self.strategy, self.threads = strategy, check_threads(threads)
        self._lists = SkinList(self.model.cutoff, skin)
        self._by_head: dict[str, Results] = {}
        self._charge_warned = False
        self._choose(select_head(self.model, head))

    @property
    def head(self) -> str:
        """Name of the head that answers."""
        return self._head

    @property
    def extra_properties(self) -> list[str]:
        """Keys of ``results`` beyond ``implemented_properties``, see the class."""
        return list(COMMITTEE_PROPERTIES) if self._n_members(self._head) > 1 else []

    def set(self, **settings: Any) -> dict[str, Any]:  # noqa: ANN401  (ASE's signature)
        """Change head, device, dtype, strategy or threads, and forget the results.

        Args:
            **settings: New values, as for the constructor.

        Returns:
            The settings that changed.

        Raises:
            UserError: For an unknown setting or value.
        """
        for name in settings:
            if name not in _SETTINGS:
                raise UserError(
                    f"a calculator has no setting {name!r}; there are "
                    f"{', '.join(_SETTINGS)}.{did_you_mean(name, _SETTINGS)}"
                )
        if not settings:
            return {}
        before = dict(self.parameters)
        device, dtype = settings.get("device"), settings.get("dtype")
        self.model = place_model(self.model, device, dtype)
        self.strategy = settings.get("strategy", self.strategy)
        self.threads = check_threads(settings.get("threads", self.threads))
        self._choose(select_head(self.model, settings.get("head", self._head)))
        return {k: v for k, v in self.parameters.items() if before.get(k) != v}

    def reset(self) -> None:
        """Forget the last structure and its results."""
        super().reset()  # type: ignore[no-untyped-call]
        self._by_head = {}

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """Return what the model reads and what changed since the last evaluation."""
        changes: list[str] = super().check_state(atoms, tol)  # type: ignore[no-untyped-call]
        if self.atoms is not None and not (self.atoms.pbc.any() or atoms.pbc.any()):
            changes = [name for name in changes if name != "cell"]  # not read then
        if self.atoms is not None:
            now, before = state_of(atoms), state_of(self.atoms)
            read = self.model.backbone.conditioned_on
            changes += [name for name in read if now[name] != before[name]]
        return changes

    def get_property(
        self, name: str, atoms: Atoms | None = None, allow_calculation: bool = True
    ) -> float | NDArray[np.float64] | None:
        """Return one result, computing all of them if the structure is new.

        Args:
            name: A key of the class's table.
            atoms: The structure; ``None`` for the last one.
            allow_calculation: When false, ``None`` is returned for a new structure.

        Returns:
            A float, or an array that is the caller's own.

        Raises:
            PropertyNotImplementedError: For a name this calculator does not give, or a
                stress where none exists.
        """
        if name not in (*self.implemented_properties, *self.extra_properties):
            raise PropertyNotImplementedError(f"{name!r}: {self._what_there_is()}")
        structure = self._structure(atoms)
        if self.check_state(structure) or not self.results:
            self.reset()
            if not allow_calculation:
                return None
            self.calculate(structure, [name])
        else:
            self._warn_of_charge(structure)
        if name not in self.results:
            raise PropertyNotImplementedError(
                f"{name} needs a periodic direction and a cell with a volume; here pbc is "
                f"{structure.pbc.tolist()} and the volume {structure.cell.volume:g} A^3"
            )
        value = self.results[name]
        return value.copy() if isinstance(value, np.ndarray) else value

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] = ("energy",),  # noqa: ARG002  (all are computed)
        system_changes: Sequence[str] = tuple(all_changes),  # noqa: ARG002
    ) -> None:
        """Evaluate a structure, always anew, and fill ``results`` with everything.

        Args:
            atoms: The structure; ``None`` for the last one.
            properties: Taken for ASE's sake; everything is computed at once.
            system_changes: Taken for ASE's sake.

        Raises:
            UserError: For a structure the model cannot evaluate, such as one with an
                unknown element.
            CalculationFailed: When the model gives numbers that are not finite.
        """
        structure = self._structure(atoms)
        self.reset()
        self.results = self._evaluate(structure, [self._head])[self._head]
        self.atoms = structure.copy()

    def results_by_head(self, atoms: Atoms | None = None) -> dict[str, Results]:
        """Return the results of every head, for at most one more forward pass.

        Args:
            atoms: The structure; ``None`` for the last one.

        Returns:
            For every head of the model, in its order, a dictionary like ``results``;
            with ``energies`` only when all heads are of the kind ``node_sum``.

        Raises:
            UserError: As :meth:`calculate`.
        """
        structure = self._structure(atoms)
        if self.check_state(structure) or not self._by_head:
            self.reset()
            self._by_head = self._evaluate(structure, self.model.head_names)
            self.results = copy.deepcopy(self._by_head[self._head])
            self.atoms = structure.copy()
        return copy.deepcopy(self._by_head)

    def export_properties(self) -> Properties:
        """Return the results that ASE has names for."""
        return Properties({k: v for k, v in self.results.items() if k in all_outputs})

    def _get_name(self) -> str:
        return "gnnforce"

    def _choose(self, head: str) -> None:
        check_strategy(self.strategy)  # refuses unknown names
        self._head = head
        names = ["energy", "free_energy", "forces", "stress"]
        # an own list: the one of the class is shared by all calculators
        self.implemented_properties = [*names, *["energies"] * self._is_additive(head)]
        self.parameters.update(
            head=head,
            device=str(self.model.device),
            dtype=str(self.model.dtype).removeprefix("torch."),
            strategy=self.strategy,
            threads=self.threads,
        )
        self.reset()

    def _structure(self, atoms: Atoms | None) -> Atoms:
        structure = self.atoms if atoms is None else atoms
        if structure is None:
            raise UserError("the calculator has seen no structure yet; pass atoms")
        return structure

    def _evaluate(self, atoms: Atoms, heads: list[str]) -> dict[str, Results]:
        self._warn_of_charge(atoms)
        graph = self._lists.graph(atoms)
        wanted = ["energy", "forces"]
        if has_stress(graph).all():
            wanted.append("stress")
        if all(self._is_additive(head) for head in heads):
            wanted.append("energies")
        with thread_limit(self.threads):
            predictions = self.model.predict(
                graph.to(self.model.device), wanted, strategy=self.strategy, heads=heads
            )
        return {
            head: ase_results(predictions.head(head), wanted, self._n_members(head))
            for head in heads
        }

    def _n_members(self, head: str) -> int:
        return self.model.outputs.head(head).members

    def _is_additive(self, head: str) -> bool:
        return self.model.outputs.head(head).kind == "node_sum"

    def _warn_of_charge(self, atoms: Atoms) -> None:
        if not self._charge_warned and "charge" not in self.model.backbone.conditioned_on:
            self._charge_warned = warn_of_charge(atoms)

    def _what_there_is(self) -> str:
        names = ", ".join([*self.implemented_properties, *self.extra_properties])
        return f"not among the results of head {self._head!r}, which are {names}"
