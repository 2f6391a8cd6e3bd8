"""Backbone, readouts and derivatives joined: force fields, predictions, model files."""
