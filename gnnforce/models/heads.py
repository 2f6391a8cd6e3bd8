"""Which head answers when none is named: one rule for every route."""

from gnnforce.models.force_field import ForceField


def default_head(model: ForceField) -> str:
    """Return the head that answers when none is named: the first of the model.

    Example:
        >>> from gnnforce.backbones.schnet import SchNet
        >>> from gnnforce.readouts.head import Head
        >>> default_head(ForceField(SchNet([1]), [Head("pbe"), Head("ccsd")]))
        'pbe'
    """
    return model.outputs.names[0]


def choose_head(model: ForceField, name: str | None) -> str:
    """Return the named head, or the default one for None.

    Raises:
        UnknownHeadError: Lists the heads.
    """
    return default_head(model) if name is None else model.outputs.check(name)
