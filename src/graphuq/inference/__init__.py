"""From a prior and a model to a posterior: whitened coordinates, samplers, modes, diagnostics."""
