"""Errors a user can cause and mend: one line each, naming the thing and the remedy.

Programming errors stay ordinary exceptions with a traceback; everything derived from
:class:`UserError` is printed by the command line as ``error: <message>`` with a
non-zero exit status.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Base of all errors that a user can mend."""


class DataError(UserError):
    """A file or a label that cannot be used."""


class ConfigError(UserError):
    """A configuration value that cannot be used."""


class ModelFileError(UserError):
    """A model file that cannot be loaded."""


class UnknownElementError(UserError):
    """A structure holds an element that the model was not trained for."""


class UnknownHeadError(UserError):
    """A head was asked for that the model does not have."""


class GeometryError(UserError):
    """Positions, cell and periodicity that do not make a structure."""


class StressError(UserError):
    """A stress was asked for where none exists."""


class MissingQuantityError(UserError, KeyError):
    """A quantity was looked up that was not asked for.

    A ``KeyError`` too, so that ``in`` and ``get`` of a mapping answer.
    """

    __str__ = Exception.__str__  # a KeyError would put its message in quotes


class GradientError(UserError):
    """A gradient that is not finite, which would spoil every parameter."""


class StatisticsError(UserError):
    """A statistic that the number of members does not define."""


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Suggest the nearest valid name, as the tail of an error message.

    Args:
        word: What the user wrote.
        options: The valid names.

    Returns:
        ``" Did you mean 'x'?"``, or an empty string when nothing is near.

    Example:
        >>> did_you_mean("learning_rat", ["learning_rate", "epochs"])
        " Did you mean 'learning_rate'?"
    """
    names = {str(option).lower(): str(option) for option in options}
    near = get_close_matches(str(word).lower(), names, n=1, cutoff=0.6)
    return f" Did you mean {names[near[0]]!r}?" if near else ""
