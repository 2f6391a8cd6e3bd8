"""Layers with parameters that know nothing of physics."""
