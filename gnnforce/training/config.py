"""Configuration of a training run: checked as a whole before anything runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, model_validator

from gnnforce.errors import ConfigError, did_you_mean
from gnnforce.training.config_errors import one_line
from gnnforce.training.config_file import apply_override, read_mapping
from gnnforce.training.sections import DataConfig, ModelConfig, OptimConfig, Section, Seed

PATHS = (
    ("data", "train"),
    ("data", "valid"),
    ("data", "test"),
    ("data", "isolated_atoms"),
)


class TrainingConfig(Section):
    """A training run.

    Attributes:
        data: Which structures and labels are read.
        model: The network.
        training: How it is trained.
        output: Folder for the results.
        seed: Of the split, the start of the weights, the order of the data and the
            draws of members.

    Example:
        >>> config = make_config({"data": {"train": "frames.xyz"}})
        >>> config.training.epochs, list(config.model.heads)
        (100, ['energy'])
    """

    data: DataConfig
    model: ModelConfig = ModelConfig()
    training: OptimConfig = OptimConfig()
    output: str = "gnnforce-run"
    seed: Seed = 0

    @model_validator(mode="before")
    @classmethod
    def _heads_of_the_model(cls, values: Any) -> Any:  # noqa: ANN401
        """Give the model the heads of the data when it names none."""
        if not isinstance(values, dict):
            return values
        data, model = values.get("data"), values.get("model") or {}
        if isinstance(data, dict) and isinstance(model, dict) and not model.get("heads"):
            names = data.get("heads") or {"energy": {}}
            if isinstance(names, dict):
                heads: dict[str, Any] = {name: {} for name in names}
                return values | {"model": model | {"heads": heads}}
        return values

    @model_validator(mode="after")
    def _labels_have_heads(self) -> "TrainingConfig":
        for name in self.data.heads:
            if name not in self.model.heads:
                raise ValueError(
                    f"data.heads has {name!r}, which model.heads has not."
                    + did_you_mean(name, self.model.heads)
                )
        return self

    @model_validator(mode="after")
    def _tasks_are_heads(self) -> "TrainingConfig":
        tasks = self.training.multitask
        if tasks is None:
            return self
        for name in tasks.weights:
            if name not in self.model.heads:
                raise ValueError(
                    f"training.multitask.weights has {name!r}, which model.heads has not."
                    + did_you_mean(name, self.model.heads)
                )
        if tasks.combine != "sum" and len(self.data.heads) < 2:
            raise ValueError(
                f"training.multitask.combine={tasks.combine} combines the gradients of "
                f"several heads, but only {next(iter(self.data.heads))!r} is trained; "
                "remove it, or add heads to data.heads"
            )
        return self


def make_config(values: dict[str, Any]) -> TrainingConfig:
    """Check nested values and fill in defaults.

    Args:
        values: Nested values as in a configuration file.

    Returns:
        The configuration.

    Raises:
        ConfigError: One line that names the dotted key, and the nearest valid one.
    """
    try:
        return TrainingConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(one_line(error, values, TrainingConfig)) from error


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainingConfig:
    """Read a configuration file.

    Args:
        path: A YAML file; relative paths in it are relative to its folder.
        overrides: Words like ``"training.epochs=50"``, which win over the file; their
            values are read as YAML, and paths are relative to the file as well.

    Returns:
        The configuration, with absolute paths.

    Raises:
        ConfigError: For a file that is missing or no YAML, an unknown key, a value of
            the wrong type, or options that exclude each other.
    """
    path = Path(path)
    values = read_mapping(path)
    for word in overrides:
        apply_override(values, word)
    if "output" not in values:
        values["output"] = TrainingConfig.model_fields["output"].default
    return make_config(_with_absolute_paths(values, path.absolute().parent))


def save_config(config: TrainingConfig, path: str | Path) -> None:
    """Write a configuration with every default filled in; ``load_config`` reads it."""
    values = config.model_dump(mode="json")
    if config.training.minutes is not None:
        del values["training"]["epochs"]
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    Path(path).write_text(text, encoding="utf-8")


def _with_absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    def absolute(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, str) or _is_number(value):
            return value
        return str(folder / Path(value).expanduser())

    values = dict(values)
    values["output"] = absolute(values["output"])
    for section, key in PATHS:
        part = values.get(section)
        if isinstance(part, dict) and key in part:
            values[section] = values[section] | {key: absolute(part[key])}
    return values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
