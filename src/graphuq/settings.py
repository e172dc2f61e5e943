"""The settings of a classifier in; whether they make sense, and which of them make a difference, out."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from graphuq.models import GinzburgLandau, LevelSet, Probit

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

AFFINITIES = ("knn", "self_tuning", "gaussian", "cosine", "precomputed")
PRIORS = ("learned", "matern", "approximate", "project", "full")
MODELS: dict[str, Any] = {
    "probit": Probit,
    "level_set": LevelSet,
    "ginzburg_landau": GinzburgLandau,
}
INFERENCES = ("auto", "sample")
MAY_BE_NONE = ("width", "gamma")


def check_settings(classifier: GraphClassifier) -> None:
    """Refuse settings that do not exist, or are beyond reason, with a sentence that says what is allowed."""
    for name, value, allowed in (
        ("affinity", classifier.affinity, AFFINITIES),
        ("prior", classifier.prior, PRIORS),
        ("model", classifier.model, tuple(MODELS)),
        ("inference", classifier.inference, INFERENCES),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.")
    for name, least in (("n_modes", 2), ("n_neighbors", 1), ("n_steps", 1), ("n_chains", 1)):
        if not isinstance(count := getattr(classifier, name), Integral) or count < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {count!r}.")
    for name in ("width", "gamma", "epsilon", "tau", "alpha", "time_limit"):
        if not isinstance(number := getattr(classifier, name), Real | None if name in MAY_BE_NONE else Real):
            raise ValueError(f"{name} must be a number, got {number!r}.")
    if classifier.width is not None and not 0 < classifier.width < np.inf:
        raise ValueError(f"width must be a finite number above 0, got {classifier.width}.")
    for name in ("gamma", "epsilon", "tau", "alpha"):  # compared with u and eigenvalues, both of order one
        if (number := getattr(classifier, name)) is not None and not 1e-9 <= number <= 1e9:
            raise ValueError(f"{name} must lie between 1e-9 and 1e9, got {number}.")
    if not classifier.time_limit > 0:
        raise ValueError(f"time_limit must be above 0 seconds, got {classifier.time_limit}.")
    if classifier.affinity == "gaussian" and classifier.width is None:
        raise ValueError('affinity="gaussian" needs a width, the distance at which rows still count as similar.')


def without_effect(classifier: GraphClassifier) -> list[str]:
    """The settings that make no difference, since others rule them out."""
    affinity, prior = classifier.affinity, classifier.prior
    counts = {
        "width": affinity == "gaussian",
        "n_neighbors": affinity in ("knn", "self_tuning"),
        "n_components": affinity not in ("cosine", "precomputed"),
        "n_modes": affinity != "cosine" and prior != "full",
        "tau": prior == "matern",
        "alpha": prior == "matern",
        "epsilon": classifier.model == "ginzburg_landau",
        "time_limit": classifier.inference == "auto",
    }
    return [name for name, has_effect in counts.items() if not has_effect]
