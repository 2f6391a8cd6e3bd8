"""Nothing waits for the device between graph and result, read off the source text.

On a CUDA device operations are queued. Whatever needs a number on the host (``.item()``,
the size of what a mask selects, an ``if`` on a tensor) or copies a Python list to the
device waits for the queue to run empty, once a call, however fast the kernels are.
``tests/models/test_device.py`` runs the same rules: it computes where no number can be
looked at.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "gnnforce"
HOT = [
    *sorted((PACKAGE / "ops").glob("*.py")),
    *sorted((PACKAGE / "nn").glob("*.py")),
    *sorted((PACKAGE / "backbones").glob("*.py")),
    *sorted((PACKAGE / "readouts").glob("*.py")),
    *sorted((PACKAGE / "derivatives").glob("*.py")),
    PACKAGE / "graph" / "views.py",
    *(
        path
        for path in sorted((PACKAGE / "models").glob("*.py"))
        # files; names of heads; times of this machine
        if path.name not in ("checkpoint.py", "heads.py", "calibration.py")
    ),
]

# file:function -> why it may; an entry that excuses nothing is an error.
ALLOWED = {
    "ops/slots.py:_place": "looks at numbers on the CPU only; a bound elsewhere",
    "ops/slots.py:_same": "looks at numbers on the CPU only; at the version elsewhere",
    "ops/slots.py:choose_width": "looks at numbers on the CPU only; fixed elsewhere",
    "derivatives/tasks.py:combine": "an aggregator of TorchJD decides on the host",
    "derivatives/tasks.py:_factors": "checks a few numbers that the user gave",
    "derivatives/tasks.py:_check_finite": "nothing may be written to .grad before",
    "nn/embedding.py:ElementTable.__init__": "runs once, when a model is made",
    "nn/embedding.py:ElementTable.forward": "looks at numbers on the CPU only",
    "nn/embedding.py:ElementTable.check": "names what is wrong, on the CPU or on request",
    "readouts/references.py:AtomicReferences.as_dict": "describes a model",
    "readouts/references.py:AtomicReferences._fill": "sets values of a model",
    "readouts/repulsion.py:ZBLRepulsion.__init__": "runs once, when a model is made",
    "models/elastic.py:elastic_constants": "a matrix is inverted, which waits anyway",
    "models/force_field.py:ForceField._refuse": "looks at numbers on the CPU only",
    "models/leaves.py:check_cutoff": "looks at numbers on the CPU only",
    "models/leaves.py:_isolated": "made once for each set of elements",
    "models/second_order.py:symmetrized": "a wrong second derivative is refused, once",
    "models/tangents.py:largest_graph": "sizes are on the host, or waiting is asked for",
}

COPIES = {
    "item",
    "tolist",
    "numpy",
    "cpu",
    "nonzero",
    "argwhere",
    "masked_select",
    "unique",
    "unique_consecutive",
    "bincount",
    "is_nonzero",
    "equal",
    "allclose",
    "from_numpy",
}
LITERALS = {"torch.tensor", "torch.as_tensor", "torch.asarray", "torch.Tensor"}
REDUCTIONS = {"any", "all", "max", "min", "sum", "mean", "argmax", "argmin", "norm"}
REDUCTIONS |= {"amax", "amin", "count_nonzero", "isfinite", "isnan", "prod"}
VERDICTS = {"any", "all", "isfinite", "isnan"}


class Finding(NamedTuple):
    """Something that waits for the device."""

    line: int
    function: str
    what: str


def dotted(node: ast.AST) -> str:
    """``torch.where`` for that attribute, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def last_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return dotted(call.func)


def joins_masks(node: ast.expr) -> bool:
    """Whether this is ``a & b`` or ``a | b`` of tensors; ``int | None`` is a type."""
    if not isinstance(node, ast.BinOp):
        return False
    types = {"int", "float", "str", "bool", "Tensor", "None"}
    if isinstance(node.op, ast.BitOr):
        return not {ast.unparse(node.left), ast.unparse(node.right)} & types
    return isinstance(node.op, ast.BitAnd)


def is_mask(index: ast.expr) -> bool:
    """Whether an index has the looks of a boolean mask."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(part, ast.Compare)
        or (isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Invert))
        or joins_masks(part)
        or (isinstance(part, ast.Call) and last_name(part) in VERDICTS)
        or "mask" in dotted(part).lower()
        for part in parts
    )


def reduces(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression calls a method or torch function of one of these names."""
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in names
        and dotted(one.func.value) not in ("math", "np", "numpy")
        for one in ast.walk(node)
    )


def call_faults(call: ast.Call) -> Iterator[str]:
    name, full = last_name(call), dotted(call.func)
    words = {keyword.arg for keyword in call.keywords}
    if name in COPIES and isinstance(call.func, ast.Attribute):
        yield f".{name}()"
    if full in LITERALS:
        yield f"{full}(...) copies to the device"
    if full in ("torch.where", "where") and len(call.args) + len(words) == 1:
        yield "torch.where with one argument"
    if name == "repeat_interleave" and "output_size" not in words:
        yield "repeat_interleave without output_size"
    if name == "one_hot" and len(call.args) + len(words) < 2:
        yield "one_hot without num_classes"
    if full in ("bool", "int", "float") and any(
        reduces(argument, REDUCTIONS) for argument in call.args
    ):
        yield f"{full}() of a tensor"
    if name == "to" and any(
        isinstance(one, ast.Constant) and one.value == "cpu"
        for one in (*call.args, *(keyword.value for keyword in call.keywords))
    ):
        yield '.to("cpu")'


def condition_of(node: ast.AST) -> list[ast.expr]:
    """Expressions that Python takes the truth of."""
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.comprehension):
        return node.ifs
    return []


def is_verdict(node: ast.expr) -> bool:
    """Whether an expression is itself the ``any`` or ``all`` of a tensor, or a comparison."""
    if isinstance(node, ast.Compare):
        return any(
            isinstance(side, ast.Call)
            and reduces(side, REDUCTIONS - {"max", "min", "sum"})
            for side in (node.left, *node.comparators)
        )
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in VERDICTS
        and dotted(node.func.value) not in ("math", "np", "numpy")
    )


def faults(tree: ast.AST, inside: str = "") -> Iterator[Finding]:
    """Everything below a node that waits for the device."""
    for node in ast.iter_child_nodes(tree):
        where = inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{inside}.{node.name}".lstrip(".")
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Call):
            yield from (Finding(line, where, what) for what in call_faults(node))
        if isinstance(node, ast.Subscript) and is_mask(node.slice):
            yield Finding(line, where, f"mask as index: {ast.unparse(node)}")
        for test in condition_of(node):
            if is_verdict(test):
                yield Finding(test.lineno, where, f"truth of {ast.unparse(test)}")
        yield from faults(node, where)


def name_of(path: Path, finding: Finding) -> str:
    return f"{path.relative_to(PACKAGE).as_posix()}:{finding.function}"


def found_in(path: Path) -> list[Finding]:
    return list(faults(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "path", HOT, ids=[path.relative_to(PACKAGE).as_posix() for path in HOT]
)
def test_fast_path_never_waits_for_the_device(path: Path):
    found = [
        f"{name_of(path, one)}, line {one.line}: {one.what}"
        for one in found_in(path)
        if name_of(path, one) not in ALLOWED
    ]
    assert not found


def test_every_exception_is_needed():
    used = {name_of(path, one) for path in HOT for one in found_in(path)}
    assert set(ALLOWED) <= used


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("x.sum().item()", ".item()"),
        ("x.tolist()", ".tolist()"),
        ("x.nonzero()", ".nonzero()"),
        ("torch.nonzero(x)", ".nonzero()"),
        ("x.detach().cpu()", ".cpu()"),
        ("x.to('cpu')", '.to("cpu")'),
        ("x.to(device='cpu')", '.to("cpu")'),
        ("x.numpy()", ".numpy()"),
        ("x.unique()", ".unique()"),
        ("torch.equal(x, y)", ".equal()"),
        ("torch.where(x > 0)", "torch.where with one argument"),
        ("torch.tensor([1, 2], device=x.device)", "torch.tensor(...) copies"),
        ("torch.as_tensor(x)", "torch.as_tensor(...) copies"),
        ("x.repeat_interleave(n)", "repeat_interleave"),
        ("x[x > 0]", "mask as index"),
        ("x[mask]", "mask as index"),
        ("x[:, ~keep]", "mask as index"),
        ("x[keep & other] = 0", "mask as index"),
        ("x[keep | other]", "mask as index"),
        ("x[torch.isfinite(x)]", "mask as index"),
        ("bool((x > 0).any())", "bool() of a tensor"),
        ("int(x.max())", "int() of a tensor"),
        ("float(x.abs().max())", "float() of a tensor"),
        ("if x.any(): pass", "truth of x.any()"),
        ("if not torch.all(x > 0): pass", "truth of torch.all(x > 0)"),
        ("assert (x > 0).all()", "truth of (x > 0).all()"),
        ("y = 1 if x.isnan() else 2", "truth of x.isnan()"),
        ("while n and x.any(): pass", "truth of x.any()"),
    ],
)
def test_planted_faults_are_found(code: str, what: str):
    found = [one.what for one in faults(ast.parse(f"def f(x):\n    {code}\n"))]
    assert len(found) == 1
    assert found[0].startswith(what)


@pytest.mark.parametrize(
    "code",
    [
        "torch.where(x > 0, x, 0)",
        "tuple[Tensor | None, ...], Mapping[str, float | Mapping[int, float]]",
        "x[0], x[:, None], x[..., 1:], x[index]",
        "int(x.shape[0])",
        "float(self.cutoff)",
        "if x.shape[0] > 3 and any(n > 1 for n in names): pass",
        "if all(sizes) or math.isfinite(a): pass",
        "max(1, min(a, b))",
        "x.repeat_interleave(n, output_size=m)",
        "x.to(y.device, torch.float64)",
        "torch.zeros(3, device=x.device)",
        "values.item_size",
    ],
)
def test_what_does_not_wait_is_left_alone(code: str):
    assert not list(faults(ast.parse(code)))


def test_functions_are_named_with_their_classes():
    code = "class A:\n    def f(self, x):\n        def g():\n            x.item()\n"
    assert [one.function for one in faults(ast.parse(code))] == ["A.f.g"]
