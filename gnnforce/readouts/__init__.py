"""Node features to outputs: heads, atomic references and scales, core repulsion."""
