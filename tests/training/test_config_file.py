import pytest

from gnnforce.errors import ConfigError
from gnnforce.training.config_file import apply_override, read_mapping


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no"),
        ("- a\n- b\n", "holds no"),
        ("data: {train: [\n", "not valid YAML"),
        ("seed: 1\nseed: 2\n", "'seed' stands twice"),
        ("training:\n  epochs: 1\n  epochs: 2\n", "'epochs' stands twice"),
    ],
)
def test_files_that_hold_no_configuration(text, words, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_mapping(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no configuration file .*gone\.yaml"):
        read_mapping(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="no configuration file"):
        read_mapping(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_mapping(tmp_path / "b.yaml")


def test_overrides_make_sections_and_read_yaml():
    values: dict = {"a": {"b": 1}, "empty": None}
    for word in ("a.c=[1, 2]", "new.deep.key=null", "empty.x=1.5", "a.b=x=y"):
        apply_override(values, word)
    assert values == {
        "a": {"b": "x=y", "c": [1, 2]},
        "empty": {"x": 1.5},
        "new": {"deep": {"key": None}},
    }


@pytest.mark.parametrize("word", ["epochs", "=3", "a..b=1", "a.b=[1", "a.b.c=1"])
def test_wrong_words_are_refused(word):
    with pytest.raises(ConfigError):
        apply_override({"a": {"b": 3}}, word)


def test_a_mapping_can_take_over_keys_of_another(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("data: &one {train: a.xyz}\nother: {<<: *one, valid: 0.1}\n")
    assert read_mapping(path)["other"] == {"train": "a.xyz", "valid": 0.1}
