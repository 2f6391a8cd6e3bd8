"""The program itself: help, versions, exit status, what start-up imports."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pytest

import gnnforce.cli
from gnnforce.cli import main as program
from gnnforce.errors import DataError

COMMANDS = ("train", "evaluate", "predict", "md", "info")
SOURCES = sorted(Path(gnnforce.cli.__file__).parent.glob("*.py"))


def test_help_names_every_command(run):
    result = run("--help")
    assert result.status == 0
    assert all(command in result.out for command in COMMANDS)
    assert run().out == result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(run, command):
    result = run(command, "--help")
    assert result.status == 0
    assert f"gnnforce {command}" in result.out.split("Example")[1]
    assert "--json" in result.out


def test_version_prints_what_a_bug_report_needs(run):
    result = run("--version")
    lines = dict(line.split(" ", 1) for line in result.out.splitlines())
    assert result.status == 0
    assert lines.pop("python") == python_version()
    assert lines == {
        name: version(name) for name in ("gnnforce", "torch", "torch-geometric", "ase")
    }


@pytest.mark.parametrize("words", [["trian"], ["info"], ["info", "x", "--jsn"]])
def test_mistakes_on_the_command_line_are_one_line(run, words):
    result = run(*words)
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


def test_a_long_message_of_a_user_error_becomes_one_line(run, monkeypatch):
    def broken(*_: object) -> None:
        raise DataError("first\n  second")

    monkeypatch.setattr("gnnforce.cli.info.looks_like_model", broken)
    assert run("info", "x").err == "error: first second\n"


def test_a_bug_is_not_hidden(run, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gnnforce.cli.info.looks_like_model", broken)
    with pytest.raises(ZeroDivisionError):
        run("info", "x")


def test_interruption_has_its_own_status(run, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gnnforce.cli.info.looks_like_model", interrupted)
    assert run("info", "x").status == 130


def test_warnings_are_lines_without_a_source(capsys):
    import warnings

    with program._warnings_as_lines():
        warnings.simplefilter("always")
        warnings.warn("something\nodd", stacklevel=1)
    assert capsys.readouterr().err == "warning: something odd\n"


def test_modules_that_start_up_loads_import_nothing_heavy():
    code = (
        "import sys, types\n"
        "package = types.ModuleType('gnnforce')\n"  # leave out the facade
        f"package.__path__ = [{str(SOURCES[0].parent.parent)!r}]\n"
        "sys.modules['gnnforce'] = package\n"
        "import gnnforce.cli.main\n"
        "heavy = {'torch', 'ase', 'matplotlib', 'scipy', 'lightning'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_commands_leave_every_judgement_to_the_package():
    """The command line parses, calls and prints: it differentiates and trains nothing."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not names & {"backward", "autograd", "requires_grad_"}, path
