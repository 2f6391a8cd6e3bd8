"""What each strategy costs, and which one ``auto`` takes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gnnforce.derivatives.splitting import rows_at_once
from gnnforce.derivatives.strategies import check_strategy

# Tensors of n_features that a row holds at a time, per atom and per edge.
TENSORS = {"loop": (14, 14), "batched": (14, 14), "forward": (32, 32), "chain": (16, 0)}
KEPT_CHAIN = 28  # and per layer, when the graph is kept

FEATURE_PRODUCTS = 8  # work of an atom in units of that of an edge


@dataclass(frozen=True)
class Workload:
    """What has to be differentiated.

    Attributes:
        n_rows: Outputs, or combinations of outputs.
        n_atoms: Of all graphs together.
        n_edges: Of all graphs together.
        n_features: Width of the node features.
        n_layers: Message-passing layers.
        n_pooled: Pull-backs of strategy ``jacobian``: pooled features, or outputs where
            those are fewer.
        n_directions: Of strategy ``forward``: coordinates of the largest graph, and six
            strains when a stress is wanted.
        options: Strategies the model supports.
        automatic: Those of them that ``auto`` may take.
        itemsize: Bytes of a number.
        create_graph: The result stays differentiable.
        memory: Limit in bytes for the temporaries of one piece.
    """

    n_rows: int
    n_atoms: int
    n_edges: int
    n_features: int
    n_layers: int
    n_pooled: int
    n_directions: int
    options: tuple[str, ...] = ("loop", "batched")
    automatic: tuple[str, ...] = ("loop", "batched")
    itemsize: int = 4
    create_graph: bool = False
    memory: int = 2 * 1024**3

    @property
    def size(self) -> float:
        """Numbers that one pass through the backbone touches."""
        rows = self.n_edges + FEATURE_PRODUCTS * self.n_atoms
        return self.n_layers * self.n_features * rows * self.itemsize / 4


@dataclass(frozen=True)
class Rate:
    r"""Seconds of one way to differentiate, beyond the forward pass.

    .. math:: t = n_\mathrm{pieces}\,(L\,a + S\,b) + n_\mathrm{rows}\,(L\,c + S\,d)

    with ``L`` layers and ``S`` numbers touched (``Workload.size``).

    Attributes:
        start: ``a``, launching operations once, per layer.
        start_size: ``b``, what is done once whatever the number of rows, per number.
        row: ``c``, launching operations for every row, per layer.
        row_size: ``d``, work of every row, per number.
    """

    start: float
    start_size: float
    row: float
    row_size: float

    def seconds(self, work: Workload, n_rows: int, n_pieces: int) -> float:
        """Estimate the time of some rows in some pieces."""
        once = work.n_layers * self.start + work.size * self.start_size
        each = work.n_layers * self.row + work.size * self.row_size
        return n_pieces * once + n_rows * each


@dataclass(frozen=True)
class Constants:
    """The cost model's numbers; ``gnnforce.calibrate()`` measures them.

    Attributes:
        rates: By strategy: ``loop``, ``batched``, ``chain``, ``forward``.
        product: Seconds of a multiplication and addition in a matrix product.
    """

    rates: Mapping[str, Rate]
    product: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        rates = {name: asdict(rate) for name, rate in self.rates.items()}
        return {"rates": rates, "product": self.product}


# A core of a server CPU, float32, 64 features, 3 layers; only ratios matter to the choice
# (scripts/benchmark_strategies.py --threads 1 --calibrate).
DEFAULTS: dict[str, Constants] = {
    "PaiNN": Constants(
        rates={
            "loop": Rate(0.0, 0.0, 4e-4, 1.5e-8),
            "batched": Rate(1.8e-3, 0.0, 2e-5, 2e-8),
            "chain": Rate(1.3e-3, 1e-8, 1.2e-5, 2.1e-9),
            "forward": Rate(2.5e-3, 0.0, 2e-5, 3e-8),
        },
        product=1.2e-11,
    ),
    "SchNet": Constants(
        rates={
            "loop": Rate(0.0, 0.0, 2.4e-4, 4.7e-9),
            "batched": Rate(1.1e-3, 0.0, 1e-5, 5.7e-9),
            "chain": Rate(8.3e-4, 9e-9, 7e-6, 3.5e-10),
            "forward": Rate(1.5e-3, 0.0, 1e-5, 1e-8),
        },
        product=1.2e-11,
    ),
}
REFERENCE = "PaiNN"  # stands for architectures that nobody measured


@dataclass(frozen=True)
class Choice:
    """How derivatives were taken.

    Attributes:
        requested: The strategy asked for.
        used: The strategy taken; ``"none"`` when nothing was differentiated.
        passes: Cotangents pulled back, or directions pushed forward.
        pieces: Into how many pieces these were split to stay within the memory limit.
        reason: Why, in words.
    """

    requested: str
    used: str
    passes: int
    pieces: int
    reason: str


def passes_of(strategy: str, work: Workload) -> int:
    """Return how often a strategy goes through the backbone."""
    if strategy == "forward":
        return work.n_directions
    return work.n_pooled if strategy == "jacobian" else work.n_rows


def engine_of(strategy: str, work: Workload) -> str:
    """Return what pulls back: ``jacobian`` uses the best of the others."""
    if strategy != "jacobian":
        return strategy
    return "chain" if "chain" in work.options else "batched"


def row_bytes(strategy: str, work: Workload) -> float:
    """Estimate the bytes that one row takes while it passes through the backbone.

    A vectorized pass holds a few tensors of the size of the messages, ``(n_edges, 3
    n_features)``; the chain holds node tensors and one ``(n_edges, 3)``. A kept graph
    holds those of all layers. The counts of tensors are those of PaiNN, by the growth of
    the process with the number of rows; SchNet takes less.
    """
    engine = engine_of(strategy, work)
    nodes, edges = TENSORS[engine]
    if engine == "chain" and work.create_graph:
        nodes = KEPT_CHAIN
    layers = work.n_layers if work.create_graph else 1
    inner = (nodes * work.n_atoms + edges * work.n_edges) * work.n_features * layers
    if strategy == "forward":
        inner += work.n_rows * work.n_atoms
    # gradients of edges, and three copies in double precision on the way to forces
    outer = (3 * work.itemsize + 72) * work.n_edges + 48 * work.n_atoms
    return work.itemsize * inner + outer


def rows_per_piece(strategy: str, work: Workload) -> int:
    """Return how many rows or directions one piece has."""
    if strategy == "loop":
        return max(1, work.n_rows)
    size = row_bytes(strategy, work)
    return rows_at_once(passes_of(strategy, work), size, work.memory)


def estimate(strategy: str, work: Workload, constants: Constants) -> float:
    """Estimate the seconds that a strategy takes beyond the forward pass.

    Example:
        >>> small = Workload(64, 15, 190, 64, 3, 64, 45)
        >>> painn = DEFAULTS["PaiNN"]
        >>> estimate("batched", small, painn) < estimate("loop", small, painn)
        True
    """
    passes = passes_of(strategy, work)
    pieces = -(-passes // rows_per_piece(strategy, work))
    if strategy == "loop":
        pieces = 0
    rate = constants.rates[engine_of(strategy, work)]
    products = 0
    if strategy == "forward":
        products = work.n_rows * passes * work.n_atoms * work.n_features
    elif strategy == "jacobian" and passes < work.n_rows:
        products = work.n_rows * passes * 3 * work.n_atoms
    return rate.seconds(work, passes, pieces) + products * constants.product


def choose(name: str, work: Workload, constants: Constants) -> tuple[str, str]:
    """Resolve ``"auto"`` to the strategy of least estimated time, and check other names.

    Deterministic for given constants; of equals the earlier in ``work.options`` wins.

    Returns:
        The strategy and the reason in words.

    Raises:
        UserError: For a name that does not exist, or a strategy that the model does not
            support.

    Example:
        >>> choose("auto", Workload(1, 15, 190, 64, 3, 1, 45), DEFAULTS["PaiNN"])[0]
        'loop'
    """
    check_strategy(name, work.options)
    if name != "auto":
        return name, "asked for"
    options = [
        option
        for option in work.automatic
        # with as many pull-backs as outputs it is another name for its engine
        if option != "jacobian" or work.n_pooled < work.n_rows
    ]
    seconds = {option: estimate(option, work, constants) for option in options}
    best = min(seconds, key=lambda option: seconds[option])
    times = ", ".join(f"{option} {1e3 * t:.2g} ms" for option, t in seconds.items())
    return best, f"least estimated time of {times}"
