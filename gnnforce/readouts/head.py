"""What a head is, and the table of all outputs of a model."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from gnnforce.errors import UnknownHeadError, UserError, did_you_mean

Kind = Literal["node_sum", "node_mean", "pooled"]


@dataclass(frozen=True)
class Head:
    r"""One named readout with one or more committee members.

    With features :math:`h_i` and :math:`h^0_Z` those of an isolated atom of the same
    element, scale ``s`` and reference ``E0``:

    - ``node_sum`` (extensive, default):
      :math:`E = \sum_i s_{Z_i}[f(h_i) - f(h^0_{Z_i})] + E0_{Z_i}`
    - ``node_mean`` (intensive): the same summands, averaged over atoms
    - ``pooled``: :math:`E = \bar s\,[f(\sum_i (h_i - h^0_{Z_i})) - f(0)]
      + \sum_i E0_{Z_i}`, with the mean scale of its atoms

    so that an isolated atom has exactly its reference energy.

    Attributes:
        name: Unique in the model, such as ``"energy"``, ``"pbe"`` or ``"S1"``.
        members: Number of committee members, each with its own random start.
        kind: How atoms are combined.
        hidden: Widths of the hidden layers of every member.

    Raises:
        UserError: For an empty name, no members, an unknown kind or a width below one.

    Example:
        >>> Head("energy", members=16).kind
        'node_sum'
    """

    name: str
    members: int = 1
    kind: Kind = "node_sum"
    hidden: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        """Check the values."""
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Iterable):
            raise UserError(f"hidden of head {self.name!r} must be a list of widths")
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        if not self.name or not isinstance(self.name, str):
            raise UserError(f"a head needs a name, not {self.name!r}")
        if isinstance(self.members, bool) or not isinstance(self.members, int):
            raise UserError(f"members of head {self.name!r} must be a whole number")
        if self.members < 1:
            raise UserError(f"head {self.name!r} needs at least one member")
        if self.kind not in get_args(Kind):
            raise UserError(
                f"head {self.name!r} has the unknown kind {self.kind!r}; there are "
                f"{', '.join(get_args(Kind))}." + did_you_mean(self.kind, get_args(Kind))
            )
        if any(width < 1 for width in self.hidden):
            raise UserError(f"hidden widths of head {self.name!r} must be at least 1")

    def arguments(self) -> dict[str, Any]:
        """Return plain values that rebuild the head."""
        return {**asdict(self), "hidden": list(self.hidden)}


class OutputTable:
    """Which head and member each output index is.

    Outputs follow the order of the heads, members of a head side by side.

    Args:
        heads: The heads of a model, names unique.

    Raises:
        UserError: For no heads or a repeated name.

    Example:
        >>> table = OutputTable((Head("pbe"), Head("ccsd", members=2)))
        >>> table.n_outputs, table.slice("ccsd"), table.head_of
        (3, slice(1, 3, None), ('pbe', 'ccsd', 'ccsd'))
    """

    def __init__(self, heads: tuple[Head, ...]) -> None:
        names = [head.name for head in heads]
        if not names:
            raise UserError("a model needs at least one head")
        if len(set(names)) < len(names):
            raise UserError(f"names of heads must differ, but they are {names}")
        self.heads = tuple(heads)
        self.names = tuple(names)
        self.head_of = tuple(head.name for head in heads for _ in range(head.members))
        self.member_of = tuple(m for head in heads for m in range(head.members))
        self.n_outputs = len(self.head_of)

    def check(self, name: str) -> str:
        """Return the name when there is such a head.

        Raises:
            UnknownHeadError: Lists the heads.
        """
        if name not in self.names:
            raise UnknownHeadError(
                f"no head {name!r}; the model has {', '.join(self.names)}."
                + did_you_mean(str(name), self.names)
            )
        return name

    def head(self, name: str) -> Head:
        """Return the head of a name.

        Raises:
            UnknownHeadError: Lists the heads.
        """
        return self.heads[self.names.index(self.check(name))]

    def slice(self, name: str) -> slice:
        """Return the output indices of a head.

        Raises:
            UnknownHeadError: Lists the heads.
        """
        start = self.head_of.index(self.check(name))
        return slice(start, start + self.head(name).members)

    def select(self, names: list[str]) -> "OutputTable":
        """Return the table of some heads, in the model's order.

        Raises:
            UnknownHeadError: Lists the heads.
        """
        chosen = {self.check(name) for name in names}
        return OutputTable(tuple(head for head in self.heads if head.name in chosen))
