"""Configuration to trained model: losses, sampling of members, loop and checkpoints."""
