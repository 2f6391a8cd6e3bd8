import pytest

from gnnforce.derivatives.splitting import DEFAULT_MEMORY, memory_limit, rows_at_once
from gnnforce.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1),
        (2.5e9, 2_500_000_000),
        ("700", 700),
        ("1e6", 1_000_000),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("2GiB", 2 * 1024**3),
        ("1.5g", 1_500_000_000),
        (" 3KiB ", 3072),
        ("1TB", 10**12),
    ],
)
def test_numbers_and_text(given, expected):
    assert memory_limit(given) == expected


@pytest.mark.parametrize(
    "given", [0, -5, 0.5, "", "much", "2 GB extra", "-1GB", float("inf"), "nan", True]
)
def test_what_is_no_number_of_bytes(given):
    with pytest.raises(
        ConfigError, match=r"memory=.* is not a number of bytes; .*'2GiB'"
    ):
        memory_limit(given)


def test_the_environment_is_read_at_every_call(monkeypatch):
    monkeypatch.delenv("GNNFORCE_MEMORY", raising=False)
    assert memory_limit() == DEFAULT_MEMORY
    monkeypatch.setenv("GNNFORCE_MEMORY", "1GB")
    assert memory_limit() == 10**9
    assert memory_limit(5) == 5  # what is given wins
    monkeypatch.setenv("GNNFORCE_MEMORY", " ")
    assert memory_limit() == DEFAULT_MEMORY
    monkeypatch.setenv("GNNFORCE_MEMORY", "a lot")
    with pytest.raises(ConfigError, match="GNNFORCE_MEMORY='a lot'"):
        memory_limit()


@pytest.mark.parametrize("n_rows", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("limit", [1, 99, 100, 1500, 10**9])
def test_pieces_are_even_and_fit(n_rows, limit):
    size = rows_at_once(n_rows, 100.0, limit)
    assert 1 <= size <= n_rows
    assert size * 100 <= limit or size == 1
    n_pieces = -(-n_rows // size)
    fewest = -(-n_rows // max(1, limit // 100))
    assert n_pieces == fewest
    assert size - 1 < n_rows / n_pieces <= size


def test_nothing_to_split():
    assert rows_at_once(0, 100.0, 10) == 1
    assert rows_at_once(5, 0.0, 10) == 5
