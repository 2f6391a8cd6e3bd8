from gnnforce.testing.checks import Check, failures, run_checks


def fine():
    pass


def wrong():
    raise AssertionError("off by 2")


def silent():
    raise AssertionError


def broken():
    raise ZeroDivisionError("no")


def test_all_run_and_say_why():
    checks = run_checks({"a": fine, "b": wrong, "c": silent, "d": broken})
    assert checks[0] == Check("a", True, "")
    assert checks[1] == Check("b", False, "off by 2")
    assert checks[2] == Check("c", False, "does not hold")
    assert not checks[3].passed
    assert "ZeroDivisionError: no (broken, line" in checks[3].message


def test_failures():
    assert failures([Check("a", True, ""), Check("b", False, "x")]) == "b: x"
    assert failures([Check("a", True, "")]) == ""
