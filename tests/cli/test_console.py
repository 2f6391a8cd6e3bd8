"""What is printed: strict JSON, aligned tables, progress on standard error."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnnforce.cli import console

ODD = {
    "nan": float("nan"),
    "inf": np.float64("inf"),
    "array": np.array([[1.0, np.nan]]),
    "path": Path("a/b"),
    "number": np.int64(3),
    "true": np.bool_(True),
    1: {"set": {2}},
}


def test_json_is_strict():
    text = console.as_json_text(ODD)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "nan": None,
        "inf": None,
        "array": [[1.0, None]],
        "path": "a/b",
        "number": 3,
        "true": True,
        "1": {"set": [2]},
    }


def test_json_keeps_every_digit(tmp_path):
    value = -9391.254099941396
    path = console.write_json({"energy": value}, tmp_path / "x.json")
    assert json.loads(path.read_text())["energy"] == value


def test_work_may_not_write_between_json(capsys):
    with console.results_only(True):
        print("chatter of a library")
    console.print_json({"a": 1})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a": 1}
    assert captured.err == "chatter of a library\n"


def test_text_for_people_stays_on_standard_output(capsys):
    with console.results_only(False):
        print("result")
    console.note("remark")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result\n", "remark\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (9.999, "10.00"),
        (-0.5, "-0.500"),
        (123456.0, "123456"),
        (1e-7, "1e-07"),
        (float("nan"), "-"),
    ],
)
def test_digits(value, text):
    assert console.digits(value) == text


@pytest.mark.parametrize(("show", "seen"), [(True, True), (False, False), (None, False)])
def test_progress_bar_is_for_terminals_and_when_asked(capsys, show, seen):
    with console.progress_bar("work", 4, show) as advance:
        advance(3, "remark")
        advance(4, "done")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("4/4" in captured.err) == seen
