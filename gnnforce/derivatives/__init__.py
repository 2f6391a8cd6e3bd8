"""Outputs to gradients: the only room that differentiates.

A strategy turns cotangents into pull-backs. Everything else (forces, stress, the
public ``gradients``) is arithmetic on what a strategy returns, so a new strategy is one
function in a file of its own and one line in ``strategies.STRATEGIES``.
"""
