"""Pure tensor functions: no parameters, no graph type, no physics of a model."""
