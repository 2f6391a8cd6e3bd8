"""The rules of CONTRIBUTING.md that a machine can check, read off the source text."""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gnnforce

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gnnforce"
SOURCES = sorted(PACKAGE.rglob("*.py"))
CODE = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]

FILE_LINES, FUNCTION_LINES, ARGUMENTS = 300, 40, 7  # the aim
SLACK, EXCEPTIONS = 1.25, 0.05  # nothing above aim x slack, few above the aim

# Source files tested under another name.
TESTED_IN: dict[str, str] = {}

# Their parameters are what a user may choose; typer reads options from the signature.
OPEN_SIGNATURES = {
    "gnnforce/models/force_field.py:predict",
    "gnnforce/simulation/md.py:run_md",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold more than blanks and comments."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
    silent |= {tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def is_command(path: Path, function: Function) -> bool:
    """Whether typer makes a command of this function."""
    return path.parent == PACKAGE / "cli" and function.name == "command"


def length(function: Function, lines: set[int], signature: bool = True) -> int:
    """Lines of code of a function, without its docstring."""
    start = function.lineno if signature else function.body[0].lineno
    own = set(range(start, (function.end_lineno or 0) + 1)) & lines
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        own -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(own)


def n_arguments(function: Function) -> int:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def too_large(sizes: dict[str, int], aim: int) -> list[str]:
    """What is far above the aim, or everything above it when that is more than a few."""
    above = {name: size for name, size in sizes.items() if size > aim}
    if len(above) <= EXCEPTIONS * len(sizes):
        above = {name: size for name, size in above.items() if size > SLACK * aim}
    return [f"{name}: {size} lines, aim {aim}" for name, size in above.items()]


def dotted(node: ast.AST) -> str:
    """``torch.autograd.grad`` for that attribute, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.lineno, f"{node.module}.{alias.name}") for alias in node.names
            )


def test_files_are_short():
    sizes = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in CODE}
    assert not too_large(sizes, FILE_LINES)


def test_functions_are_short():
    sizes = {}
    for path in CODE:
        lines = code_lines(path.read_text(encoding="utf-8"))
        for function in functions(parse(path)):
            where = f"{name_of(path)}:{function.lineno} {function.name}"
            sizes[where] = length(function, lines, not is_command(path, function))
    assert not too_large(sizes, FUNCTION_LINES)


def test_functions_take_few_arguments():
    found = [
        f"{name_of(path)}:{function.lineno} {function.name}"
        for path in SOURCES
        for function in functions(parse(path))
        if n_arguments(function) > ARGUMENTS
        and not is_command(path, function)
        and f"{name_of(path)}:{function.name}" not in OPEN_SIGNATURES
    ]
    assert not found


def test_every_source_file_has_its_test_file():
    missing = []
    for path in SOURCES:
        name = path.relative_to(PACKAGE)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        default = ROOT / "tests" / name.with_name(f"test_{name.name}")
        other = TESTED_IN.get(name.as_posix())
        if not (ROOT / other if other else default).is_file():
            missing.append(f"{name_of(path)} has no {other or name_of(default)}")
    assert not missing
    assert all((PACKAGE / name).is_file() for name in TESTED_IN), (
        "TESTED_IN is out of date"
    )


def test_no_room_for_leftovers():
    names = {part for path in SOURCES for part in path.relative_to(PACKAGE).parts}
    banned = {"utils", "util", "misc", "helpers", "common"}
    assert not {name.removesuffix(".py") for name in names} & banned


def test_package_files_only_gather_names():
    """An ``__init__.py`` below the facade imports or documents, and does nothing else."""
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign)
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if path.name == "__init__.py" and path.parent != PACKAGE
        for node in parse(path).body
        if not isinstance(node, allowed)
    ]
    assert not found


def test_nothing_inside_imports_the_facade():
    found = [
        f"{name_of(path)}:{line} {name}"
        for path in SOURCES
        for line, name in imported(parse(path))
        if name == "gnnforce" or (name.startswith("gnnforce.") and is_facade_name(name))
    ]
    assert not found


def is_facade_name(name: str) -> bool:
    """``gnnforce.ForceField`` is; ``gnnforce.models.force_field.ForceField`` is not."""
    parts = name.split(".")
    room = PACKAGE / parts[1]
    return len(parts) == 2 and not (room.is_dir() or room.with_suffix(".py").is_file())


def test_only_two_rooms_differentiate():
    banned = (
        "torch.autograd.grad",
        "torch.func",
        "torch.autograd.functional",
        "torch.vmap",
    )
    found = []
    for path in SOURCES:
        if path.relative_to(PACKAGE).parts[0] in ("derivatives", "ops"):
            continue
        tree = parse(path)
        used = [
            (n.lineno, dotted(n)) for n in ast.walk(tree) if isinstance(n, ast.Attribute)
        ]
        found += [
            f"{name_of(path)}:{line} {name}"
            for line, name in (*used, *imported(tree))
            if any(name == one or name.startswith(one + ".") for one in banned)
        ]
    assert not found


def test_checks_of_this_file_find_planted_faults():
    text = 'def f():\n    """Doc.\n\n    more\n    """\n    # comment\n\n    return (\n        1\n    )\n'
    (function,) = functions(ast.parse(text))
    assert length(function, code_lines(text)) == 4
    assert too_large({"a": 41, "b": 1}, 40)
    assert too_large({"a": 51, **dict.fromkeys(map(str, range(99)), 1)}, 40)
    assert not too_large({"a": 41, **dict.fromkeys(map(str, range(99)), 1)}, 40)
    assert is_facade_name("gnnforce.ForceField")
    assert not is_facade_name("gnnforce.errors")


def test_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert gnnforce.__version__ == project["version"]
    pattern = re.compile(rf"[\"']{re.escape(project['version'])}[\"']")
    found = [
        name_of(path)
        for path in SOURCES
        if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_requirements_pin_nothing():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for group in extras.values() for one in group),
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+>=[0-9.]+", one) for one in wanted), wanted
    tools = {re.split(">=", one)[0] for one in extras["dev"]}
    assert not tools & {re.split(">=", one)[0] for one in project["dependencies"]}
