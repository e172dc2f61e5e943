"""A prior and a model in; a posterior out: whitened coordinates, samplers, modes, diagnostics."""
