"""Precision is what the user chose: no TF32, no bfloat16, no global switch is touched.

``tests/test_packaging.py`` compares the state of a process before and after; here it is
looked at in the middle of every strategy, and the source is searched for switches.
"""

import ast
from pathlib import Path

import pytest
import torch
from ase.build import molecule
from torch.utils._python_dispatch import TorchDispatchMode

from gnnforce.backbones.painn import PaiNN
from gnnforce.derivatives.strategies import OF_MODELS
from gnnforce.graph.atom_graph import AtomGraph
from gnnforce.models.force_field import ForceField
from gnnforce.readouts.head import Head

PACKAGE = Path(__file__).resolve().parents[1] / "gnnforce"

SWITCHES = {
    "set_float32_matmul_precision",
    "set_default_dtype",
    "set_default_device",
    "set_default_tensor_type",
    "use_deterministic_algorithms",
    "set_deterministic_debug_mode",
    "set_num_threads",
    "set_num_interop_threads",
    "set_autocast_enabled",
    "autocast",
    "set_flush_denormal",
    "manual_seed",
    "manual_seed_all",
    "seed_everything",
    "seed",
    "setrecursionlimit",
    "simplefilter",
    "basicConfig",
}
IN_FORK = "seeded inside fork_rng, which puts the state back"
# file: what it switches, and why that is in order
ALLOWED = {
    ("calculators/threads.py", "set_num_threads"): "asked for; puts the number back",
    ("training/engine.py", "set_num_threads"): "asked for; puts the number back",
    ("testing/peak_memory.py", "set_num_threads"): "in a process of its own",
    ("testing/benchmark_setup.py", "default_generator"): IN_FORK,
    ("training/building.py", "default_generator"): IN_FORK,
    ("models/calibration.py", "default_generator"): IN_FORK,
    ("derivatives/tasks.py", "default_generator"): IN_FORK,
    ("datasets/readers.py", "simplefilter"): "inside catch_warnings",
    ("training/engine.py", "simplefilter"): "inside catch_warnings",
}
LOW = {"bfloat16", "float16", "half", "tf32", "float8_e4m3fn"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def switches(tree: ast.AST) -> list[str]:
    """Names of global switches called, of the global generator, and of attributes of torch.backends assigned."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            # of one's own generator; that of the process is reported by its name
            text = ast.unparse(node.func)
            own = "Generator(" in text or "default_generator" in text
            found += [name] * (name in SWITCHES and not own)
        if isinstance(node, ast.Attribute) and node.attr == "default_generator":
            found.append(node.attr)
        targets = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        found += [text for text in map(ast.unparse, targets) if "torch.backends" in text]
    return found


def low_precision(tree: ast.AST) -> list[str]:
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return [node.attr for node in attributes if node.attr in LOW]


def sources() -> list[tuple[str, ast.Module]]:
    return [
        (name_of(path), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def test_no_global_switch_is_touched():
    found = {(name, one) for name, tree in sources() for one in switches(tree)}
    assert found == set(ALLOWED)


def test_no_low_precision_is_named():
    assert not [(name, low) for name, tree in sources() if (low := low_precision(tree))]


@pytest.mark.parametrize(
    "code",
    [
        "torch.set_float32_matmul_precision('high')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cudnn.benchmark = True",
        "with torch.autocast('cpu'): pass",
        "torch.manual_seed(0)",
        "torch.default_generator.manual_seed(0)",
        "np.random.seed(0)",
    ],
)
def test_planted_switches_are_found(code: str):
    assert len(switches(ast.parse(code))) == 1


def test_planted_low_precision_is_found():
    assert low_precision(ast.parse("x.to(torch.bfloat16); y.half()"))


def settings() -> dict[str, object]:
    return {
        "matmul": torch.get_float32_matmul_precision(),
        "tf32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seed": torch.random.get_rng_state().sum(),
    }


class Watch(TorchDispatchMode):
    """Record settings and floating-point types at every operation."""

    def __init__(self):
        super().__init__()
        self.settings, self.dtypes = [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.settings.append(settings())
        leaves = torch.utils._pytree.tree_leaves(result)
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        self.dtypes |= {one.dtype for one in tensors if one.is_floating_point()}
        return result


@pytest.fixture(params=["default", "of the user"])
def chosen(request):
    """Settings as they are, or those of a user who asked for speed."""
    before = torch.get_float32_matmul_precision()
    if request.param == "of the user":
        torch.set_float32_matmul_precision("high")
    yield settings()
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("strategy", [*OF_MODELS, "auto"])
def test_settings_are_the_users_at_every_operation(strategy: str, chosen):
    with torch.random.fork_rng(devices=[]):
        backbone = PaiNN([1, 8], n_features=8, n_layers=1)
        model = ForceField(backbone, [Head("energy", members=2)])
    graph = AtomGraph.from_atoms(molecule("H2O"), model.cutoff)
    with Watch() as watch:
        out = model.predict(graph, strategy=strategy, create_graph=True)
        (out["forces"].square().sum() + out["energy"].sum()).backward()
    assert len(watch.settings) > 50
    assert all(one == chosen for one in watch.settings)
    assert settings() == chosen
    assert watch.dtypes == {torch.float32, torch.float64}


def test_default_settings_are_exact():
    """Unless somebody asked: PyTorch's own defaults, which importing has not changed."""
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
