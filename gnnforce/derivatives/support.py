"""What PyTorch says of an operation without a rule, in words of this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from gnnforce.errors import UserError

# Parts of messages, by what is missing.
_NO_FORWARD_RULE = ("forward AD", "forward mode AD", "jvp staticmethod", "jvp")
_NO_BATCH_RULE = ("vmap",)


@contextmanager
def explained(strategy: str) -> Iterator[None]:
    """Turn the lack of a rule for an operation into one line with its remedy.

    Args:
        strategy: The name of the strategy that runs inside.

    Raises:
        UserError: Names the strategy and what a model can do.
    """
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        text = " ".join(str(error).split())
        if strategy == "forward" and any(part in text for part in _NO_FORWARD_RULE):
            lack, rule = "forward-mode rule", "a jvp rule"
        elif any(part in text for part in _NO_BATCH_RULE):
            lack, rule = "batching rule", "a vmap rule"
        else:
            raise
        short = text if len(text) <= 200 else text[:200] + "..."
        raise UserError(
            f"strategy {strategy!r} cannot differentiate an operation of this model, which "
            f"has no {lack}; use strategy='loop', or give its autograd.Function {rule} "
            f"(PyTorch: {short})"
        ) from error
