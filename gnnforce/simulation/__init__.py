"""Molecular dynamics with an error bar on every force: thin on ASE."""

from gnnforce.simulation.md import MDResult, run_md

__all__ = ["MDResult", "run_md"]
