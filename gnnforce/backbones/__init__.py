"""Graph to node features: one architecture a file.

Importing the room registers every architecture, so that model files find theirs.
"""

from gnnforce.backbones import painn, schnet

__all__ = ["painn", "schnet"]
