"""A learned vector for every element of the training set."""

import torch
from torch import Tensor, nn

from gnnforce.errors import UnknownElementError, UserError

# fmt: off
SYMBOLS = [
    "X", "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al",
    "Si", "P", "S", "Cl", "Ar", "K", "Ca", "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co",
    "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y", "Zr",
    "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I",
    "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy",
    "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au",
    "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U",
    "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf", "Db",
    "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og",
]
# fmt: on


def element_name(number: int) -> str:
    """Return the symbol of an atomic number, or the number where there is none.

    Example:
        >>> element_name(14), element_name(130)
        ('Si', 'Z=130')
    """
    return SYMBOLS[number] if 0 <= number < len(SYMBOLS) else f"Z={number}"


class ElementTable(nn.Module):
    """Map atomic numbers to rows ``0 ... n_elements - 1`` of the model's elements.

    Args:
        elements: Atomic numbers, in any order, without repeats; the order is kept.

    Raises:
        UserError: For an empty list, a repeat, or a number outside 1 ... 118.

    Example:
        >>> ElementTable([8, 1])(torch.tensor([1, 1, 8])).tolist()
        [1, 1, 0]
    """

    rows: Tensor

    def __init__(self, elements: list[int]) -> None:
        super().__init__()
        possible = range(1, len(SYMBOLS))
        wrong = [z for z in elements if z not in possible]
        if not elements or wrong or len(set(elements)) < len(elements):
            raise UserError(
                f"elements must be distinct atomic numbers from 1 to 118, not {elements}"
            )
        self.elements = [int(number) for number in elements]
        rows = torch.full((len(SYMBOLS) + 1,), -1, dtype=torch.int64)
        rows[torch.tensor(self.elements)] = torch.arange(len(self.elements))
        self.register_buffer("rows", rows, persistent=False)

    def __len__(self) -> int:
        """Number of elements."""
        return len(self.elements)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the row of every atom, shape ``(n_atoms,)``.

        An unknown element on the CPU raises; on another device, where looking would
        stop the device, it makes the device assert. Call :meth:`check` first there.

        Raises:
            UnknownElementError: Names the element and the model's elements.
        """
        # the first row (Z = 0) and the last stand for everything outside the table
        rows = self.rows.index_select(0, numbers.clamp(0, len(SYMBOLS)))
        if rows.device.type == "cpu":
            if bool((rows < 0).any()):
                self.check(numbers)
        else:
            torch._assert_async((rows >= 0).all())  # noqa: SLF001  (no public form)
        return rows

    def check(self, numbers: Tensor) -> None:
        """Raise for atoms of an element outside the table.

        Raises:
            UnknownElementError: Names the element and the model's elements.
        """
        present = {int(number) for number in numbers.unique().cpu().numpy()}
        unknown = sorted(present - set(self.elements))
        if unknown:
            names = ", ".join(element_name(number) for number in unknown)
            known = ", ".join(element_name(number) for number in self.elements)
            raise UnknownElementError(
                f"the model has not learned the element {names}; it knows {known}"
            )


class ElementEmbedding(nn.Module):
    """A learned feature vector for every element.

    Args:
        elements: Atomic numbers of the training set.
        n_features: Length of the vectors.
    """

    def __init__(self, elements: list[int], n_features: int) -> None:
        super().__init__()
        self.table = ElementTable(elements)
        self.weight = nn.Parameter(torch.randn(len(elements), n_features))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return features of every atom, shape ``(n_atoms, n_features)``."""
        return self.weight.index_select(0, self.table(numbers))
