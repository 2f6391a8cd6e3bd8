import threading

import pytest

from gnnforce.ops.mode import chained, is_chained, is_frozen


def state() -> tuple[bool, bool]:
    return is_chained(), is_frozen()


def test_outside_nothing_is_chained():
    assert state() == (False, False)


def test_contexts_nest_and_end():
    with chained():
        assert state() == (True, False)
        with chained(frozen=True):
            assert state() == (True, True)
            with chained():
                assert state() == (True, False)
            assert state() == (True, True)
        assert state() == (True, False)
    assert state() == (False, False)


def test_an_error_ends_the_context():
    with pytest.raises(ValueError, match="planted"), chained(frozen=True):
        raise ValueError("planted")
    assert state() == (False, False)


def test_threads_have_their_own_mode():
    seen = []
    with chained(frozen=True):
        other = threading.Thread(target=lambda: seen.append(state()))
        other.start()
        other.join()
        assert seen == [(False, False)]
        assert state() == (True, True)
