"""Options with one meaning in every command that has them."""

import inspect
from typing import get_args, get_type_hints

import pytest

from gnnforce.cli import evaluate, info, md, predict, train

COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "md": md,
    "info": info,
}
SHARED = (
    "as_json",
    "device",
    "dtype",
    "threads",
    "index",
    "progress",
    "plots",
    "batch_size",
)


def hints(module):
    return get_type_hints(module.command, include_extras=True)


@pytest.mark.parametrize("option", SHARED)
def test_an_option_means_the_same_everywhere(option):
    found = [
        hints(module)[option] for module in COMMANDS.values() if option in hints(module)
    ]
    if option == "index":  # md starts from one frame, others take slices
        found = [hint for hint in found if get_args(hint)[0] is str]
    assert len(found) > 1 or option in ("plots", "progress", "batch_size")
    assert len({get_args(hint)[1].help for hint in found}) == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    parameters = inspect.signature(COMMANDS[name].command).parameters
    for option in parameters:
        assert get_args(hints(COMMANDS[name])[option])[1].help, option
