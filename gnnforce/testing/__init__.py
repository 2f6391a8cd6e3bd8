"""Checks that any model and any ASE calculator must pass, for third parties too."""
