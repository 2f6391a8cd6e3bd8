"""Configuration files as nested values, and the words that replace some of them."""

from pathlib import Path
from typing import Any

import yaml

from gnnforce.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"


class UniqueKeyLoader(yaml.SafeLoader):
    """Reads YAML and refuses a key that stands twice, instead of taking the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: ANN401
        """Build a mapping of a node."""
        names = [
            self.construct_object(key, deep=True)
            for key, _ in node.value
            if key.tag != MERGE  # '<<', which takes over keys of another mapping
        ]
        for name in names:
            if names.count(name) > 1:
                raise yaml.YAMLError(f"the key {name!r} stands twice")
        return dict(super().construct_mapping(node, deep=deep))


def read_yaml(text: str) -> Any:  # noqa: ANN401
    """Read YAML text into plain values; raises ``yaml.YAMLError``."""
    return yaml.load(text, Loader=UniqueKeyLoader)


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        ConfigError: For a file that is missing, no YAML, or holds something else.
    """
    if not path.is_file():
        raise ConfigError(f"there is no configuration file {path}")
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {one_sentence(error)}") from error
    if not isinstance(values, dict) or not values:
        raise ConfigError(f"{path} holds no 'key: value' lines, but at least data.train")
    return values


def apply_override(values: dict[str, Any], word: str) -> None:
    """Set one value by a word like ``training.epochs=50``, in place.

    Args:
        values: Nested values; sections on the way are made where they are missing.
        word: Dotted key, ``=`` and a value in YAML.

    Raises:
        ConfigError: For a word of another form, or a key inside something that is no
            section.

    Example:
        >>> values = {"training": {"epochs": 10}}
        >>> apply_override(values, "training.epochs=50")
        >>> values
        {'training': {'epochs': 50}}
    """
    key, separator, text = word.partition("=")
    names = key.strip().split(".")
    if not separator or not all(names):
        raise ConfigError(f"{word!r} is not of the form section.key=value")
    try:
        value = read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{key}: {text!r} is not valid YAML") from error
    section = values
    for depth, name in enumerate(names[:-1]):
        inner = section.get(name)
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            where = ".".join(names[: depth + 1])
            raise ConfigError(f"{key} cannot be set: {where} is {inner!r}, not a section")
        section[name] = inner
        section = inner
    section[names[-1]] = value


def one_sentence(error: Exception) -> str:
    """Put an error over several lines into one."""
    return " ".join(str(error).split())
