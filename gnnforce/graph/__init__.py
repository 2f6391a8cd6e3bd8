"""What a structure is: atoms, cell, neighbors, and the batch of many of them."""
