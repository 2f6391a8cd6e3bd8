"""Graph to node features: one architecture a file."""
