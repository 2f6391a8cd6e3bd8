"""Which key every head reads every quantity from, decided once for all frames."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ase import Atoms

from gnnforce.datasets.keys import (
    LABELS,
    PLACES,
    KeyChoice,
    LabelSpec,
    count_keys,
    default_keys,
    find_label,
    missing_key,
    parse_key,
)
from gnnforce.datasets.values import as_floats
from gnnforce.errors import DataError, did_you_mean

Keys = dict[tuple[str, str], KeyChoice]


@dataclass
class Choices:
    """Keys by head and quantity, and what people should know about them."""

    keys: Keys = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def choose_keys(
    frames: Sequence[Atoms], specs: Sequence[LabelSpec], require: Collection[str]
) -> Choices:
    """Choose the key of every head and quantity.

    Args:
        frames: All frames.
        specs: One a head.
        require: Quantities that must be there: under every key that a head names for
            them, or, where no head names one, for at least one head.

    Returns:
        The keys; a pair of head and quantity without labels is left out.

    Raises:
        DataError: For a required label that no frame has, or heads that would read
            one key without being told to.
    """
    _check_arguments(specs, require)
    counts = count_keys(frames)
    choices = Choices()
    for quantity in LABELS:
        for spec in specs:
            _choose(choices, spec, quantity, counts, require, alone=len(specs) == 1)
        _share(frames, specs, quantity, require, choices)
    for quantity in require:
        alike = ("stress", "virial") if quantity in ("stress", "virial") else (quantity,)
        if not any((s.head, name) in choices.keys for s in specs for name in alike):
            raise missing_key("", quantity, specs[0].head, counts)
    return choices


def _check_arguments(specs: Sequence[LabelSpec], require: Collection[str]) -> None:
    if not specs:
        raise DataError("name at least one head and its labels")
    heads = Counter(spec.head for spec in specs)
    twice = [head for head, count in heads.items() if count > 1]
    if twice:
        raise DataError(f"the labels of head {twice[0]!r} are named twice")
    if isinstance(require, str):
        raise DataError(
            f"require is a set of quantities like {{'energy'}}, not {require!r}"
        )
    for name in require:
        if name not in LABELS:
            raise DataError(
                f"no labels of {name!r} are read; there are {', '.join(LABELS)}."
                + did_you_mean(name, LABELS)
            )


def _choose(
    choices: Choices,
    spec: LabelSpec,
    quantity: str,
    counts: dict[str, Counter[str]],
    require: Collection[str],
    *,
    alone: bool,
) -> None:
    named = spec.key(quantity)
    if named is None:
        for key in default_keys(spec, quantity, alone=alone):
            if _present(KeyChoice(key, None, key), counts):
                choices.keys[spec.head, quantity] = KeyChoice(key, None, key)
                return
        return
    choice = parse_key(named)
    if _present(choice, counts):
        choices.keys[spec.head, quantity] = choice
    elif quantity in require or (quantity == "virial" and "stress" in require):
        raise missing_key(named, quantity, spec.head, counts)
    else:
        choices.remarks.append(f"head {spec.head!r}: no frame has {quantity} {named!r}")


def _present(choice: KeyChoice, counts: dict[str, Counter[str]]) -> bool:
    places = [place for place in PLACES if choice.place in (None, place)]
    return any(counts[place][choice.name] > 0 for place in places)


def _share(
    frames: Sequence[Atoms],
    specs: Sequence[LabelSpec],
    quantity: str,
    require: Collection[str],
    choices: Choices,
) -> None:
    """Give heads that read one key a state each, or refuse."""
    groups: dict[tuple[str | None, str], list[LabelSpec]] = {}
    for spec in specs:
        choice = choices.keys.get((spec.head, quantity))
        if choice is not None and choice.state is None:
            groups.setdefault((choice.place, choice.name), []).append(spec)
    for group in groups.values():
        if len(group) == 1:
            continue
        choice = choices.keys[group[0].head, quantity]
        states = _count_states(frames, choice, quantity)
        if states == len(group):
            for state, spec in enumerate(group):
                choices.keys[spec.head, quantity] = replace(
                    choice, state=state, states=states
                )
        elif states == 1:
            _unshare(group, quantity, require, choices)
        else:
            heads = ", ".join(repr(spec.head) for spec in group)
            raise DataError(
                f"{quantity} {choice.text!r} holds {states} states, but {len(group)} heads "
                f"name it ({heads}); name one state a head, like '{choice.name}[0]'"
            )


def _unshare(
    group: Sequence[LabelSpec],
    quantity: str,
    require: Collection[str],
    choices: Choices,
) -> None:
    """Let only those heads read a label of one value that name it."""
    guessed = [spec for spec in group if spec.key(quantity) is None]
    key = choices.keys[group[0].head, quantity].text
    if len(guessed) == len(group) and quantity in require:
        heads = " and ".join(repr(spec.head) for spec in group)
        raise DataError(
            f"heads {heads} would both read {quantity} from {key!r}; name a key for each, "
            "or only for the head that it belongs to"
        )
    for spec in guessed:
        del choices.keys[spec.head, quantity]
        choices.remarks.append(
            f"head {spec.head!r} has no {quantity}: {key!r} is not named for it"
        )


def _count_states(frames: Sequence[Atoms], choice: KeyChoice, quantity: str) -> int:
    """Count the states of the first frame that has the label."""
    for number, atoms in enumerate(frames):
        try:
            value = find_label(atoms, choice)
            if value is None:
                continue
            size = as_floats(value).size
        except DataError as error:
            raise DataError(f"frame {number}: {choice.text!r} {error}") from error
        if quantity == "energy":
            return size
        if quantity == "forces":
            return max(size // (3 * len(atoms)), 1)
        return max(size // (9 if size % 9 == 0 else 6), 1)
    return 1
