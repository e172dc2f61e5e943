"""Graph-based classification with few labels and quantified uncertainty.

    A = graph.gaussian(X, tau=1.25)                      # features -> weights
    S = spectrum.dense(laplacian.normalized(A))          # weights -> eigenpairs
    mu0 = prior.full(S)                                  # eigenpairs -> Gaussian prior
    post = sample(mu0, models.Probit(nodes, y))          # labels -> posterior
    post.label_mean()                                    # mean label, and so the certainty, of every node

Submodules are imported lazily, so that importing the package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphuq import (
        baselines,
        calibration,
        datasets,
        graph,
        laplacian,
        learning,
        models,
        posterior,
        prior,
        queries,
        spectrum,
        tall,
        uncertainty,
        validation,
    )
    from graphuq.estimator import GraphClassifier
    from graphuq.inference.ep import Gaussian
    from graphuq.inference.gradient import NUTS, EllipticalSlice
    from graphuq.inference.map import find_mode
    from graphuq.inference.orthant import Orthant
    from graphuq.inference.pcn import PCN
    from graphuq.inference.reference import Referenced
    from graphuq.inference.run import sample
    from graphuq.inference.sampler import Info, Sampler
    from graphuq.inference.stopping import EffectiveSize, SteadyMean, TimeLimit
    from graphuq.inference.tempering import Tempered
    from graphuq.learning import learn
    from graphuq.posterior import Draws, GaussianPosterior, Mixture, Posterior
    from graphuq.validation import LabeledKFold, LabeledScorer

__version__ = "0.1.0"

_HOMES = {
    "NUTS": "inference.gradient",
    "PCN": "inference.pcn",
    "Draws": "posterior",
    "EffectiveSize": "inference.stopping",
    "EllipticalSlice": "inference.gradient",
    "Gaussian": "inference.ep",
    "GaussianPosterior": "posterior",
    "GraphClassifier": "estimator",
    "Info": "inference.sampler",
    "LabeledKFold": "validation",
    "LabeledScorer": "validation",
    "Mixture": "posterior",
    "Orthant": "inference.orthant",
    "Posterior": "posterior",
    "Referenced": "inference.reference",
    "Sampler": "inference.sampler",
    "SteadyMean": "inference.stopping",
    "Tempered": "inference.tempering",
    "TimeLimit": "inference.stopping",
    "find_mode": "inference.map",
    "learn": "learning",
    "sample": "inference.run",
}

# The names in _HOMES and the submodules, as a literal list that type checkers can read.
__all__ = [
    "NUTS", "PCN", "Draws", "EffectiveSize", "EllipticalSlice", "Gaussian", "GaussianPosterior", "GraphClassifier",
    "Info", "LabeledKFold", "LabeledScorer", "Mixture", "Orthant", "Posterior", "Referenced", "Sampler", "SteadyMean",
    "Tempered", "TimeLimit", "baselines", "calibration", "datasets", "find_mode", "graph", "laplacian", "learn",
    "learning", "models", "posterior", "prior", "queries", "sample", "spectrum", "tall", "uncertainty", "validation",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"graphuq.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"graphuq.{name}")
    raise AttributeError(f"module 'graphuq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
