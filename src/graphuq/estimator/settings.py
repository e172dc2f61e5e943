"""The settings of a classifier in; whether they make sense, which make a difference, and what they stand for, out."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from graphuq import graph as graphs
from graphuq import laplacian, spectrum
from graphuq import prior as priors
from graphuq._expect import (
    SettingError,
    SettingTypeError,
    SettingWarning,
    called,
    expect,
    expect_number,
    expect_sampler,
    expect_whole,
)
from graphuq._warn import warn
from graphuq.estimator.rows import unlike_columns
from graphuq.memory import check_room, room
from graphuq.models import MODELS, unlabeled
from graphuq.models.base import has_evidence, offer
from graphuq.prior import GaussianPrior
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

GRAPHS = ("knn", "self_tuning", "gaussian", "nystrom", "cosine", "precomputed")
# By distances, which are in the units of the columns.
COMPARES_COLUMNS = GRAPHS[:4]
SCALES = ("auto", "robust", "none")
PRIORS = ("learned", "matern", "approximate", "project", "full")
INFERENCES = ("auto", "ep", "sample")
# Residuals of the modes of a learned prior: smaller ones changed no probability by 5e-5 on seven data sets.
LEARNED_TOLERANCE = 1e-3
# Rows from which modes are found on demand; all of a smaller graph's take a fraction of a second.
ON_DEMAND_FROM = 2_000
# Principal components of sparse features, such as counts of words, where none are asked for.
SPARSE_COMPONENTS = 100
# Landmarks of "nystrom", or all rows.
N_LANDMARKS = 500
# Bytes that finding a mode takes at each node: three blocks in single precision, a third wider, and two in double.
MODE_BYTES = 32
# What a graph of nearest neighbors takes at each node, in copies of the features and of its neighbors.
NEIGHBOR_COPIES, NEIGHBOR_MATRICES = 2, 12
MAY_BE_NONE = ("width", "gamma")
# Numbers of one choice alone, and which. Others, such as `n_neighbors`, may stay while a search tries several graphs, and
# those of the draws are for `draw` too.
OF_ONE_CHOICE = {
    "width": 'graph="gaussian" and graph="nystrom"',
    "tau": 'prior="matern"',
    "alpha": 'prior="matern"',
    "epsilon": 'model="ginzburg_landau"',
}


def check_settings(classifier: GraphClassifier) -> None:
    """Refuse settings that do not exist, or are beyond reason, with a sentence that says what is allowed."""
    for name, value, allowed, other in (
        ("graph", classifier.graph, GRAPHS, "a function of X that makes a graph"),
        ("prior", classifier.prior, PRIORS, "a function of a spectrum that makes a prior"),
        ("model", classifier.model, tuple(MODELS), "a model without labels, or a class of one"),
        ("inference", classifier.inference, INFERENCES, None),
        ("scale", classifier.scale, SCALES, None),
    ):
        named = isinstance(value, str)
        told = f"must be one of {', '.join(allowed)}{f', or {other}' if other else ''}, got {called(value)}."
        if (named or other is None) and not (named and value in allowed):
            raise SettingError(name, told)
        if not named and name in ("graph", "prior") and not callable(value):
            raise SettingTypeError(name, told)
    if classifier.sampler is not None:
        expect_sampler(classifier.sampler)
    _random(classifier)
    if not isinstance(classifier.verbose, int | np.bool_ | None):
        raise SettingTypeError("verbose", f"must be True, False or None, got {called(classifier.verbose)}.")
    for name, least in (("n_modes", 2), ("n_neighbors", 1), ("n_steps", 1), ("n_chains", 1)):
        expect_whole(getattr(classifier, name), name, least)
    for name in ("width", "gamma", "epsilon", "tau", "alpha"):
        if (number := getattr(classifier, name)) is not None or name not in MAY_BE_NONE:
            expect_number(number, name)
            # compared with u and eigenvalues, both of order one; a width is squared
            low, high = ("1e-150", "1e150") if name == "width" else ("1e-9", "1e9")
            if not float(low) <= number <= float(high):
                raise SettingError(name, f"must lie between {low} and {high}, got {number}.")
    if not isinstance(limit := classifier.time_limit, Real) or not limit > 0:
        raise SettingError("time_limit", f"must be a number above 0, of seconds, got {called(limit)}.")
    if classifier.graph in ("gaussian", "nystrom") and classifier.width is None:
        raise SettingError(
            "width", f"must be given for {classifier.graph} weights: the distance at which rows count as similar."
        )


def without_effect(classifier: GraphClassifier, n_classes: int | None = None) -> list[str]:
    """The settings that make no difference, since others rule them out.

    With a number of classes, or those of a fit, also those that only another number would look at.
    """
    graph, prior = classifier.graph, classifier.prior
    template = unlabeled(classifier.model, classifier)
    # a model of a user's own takes no settings, and may offer no evidence
    named = template is not classifier.model
    n_classes = n_classes or len(getattr(classifier, "classes_", ()))
    if named and n_classes:
        template = replace(template, n_fields=1 if n_classes == 2 else n_classes)
    taken = offer(template, "numbers") if named else ()
    by_ep = prior == "learned" and named and has_evidence(template)
    drawn = classifier.inference == "sample" or (classifier.inference == "auto" and not by_ep)
    counts = {
        "width": graph in ("gaussian", "nystrom"),
        "n_neighbors": graph in ("knn", "self_tuning"),
        "n_components": graph in COMPARES_COLUMNS,
        "scale": graph in COMPARES_COLUMNS,
        "n_modes": graph != "cosine" and prior != "full",
        "tau": prior == "matern",
        "alpha": prior == "matern",
        "gamma": "gamma" in taken,
        "epsilon": "epsilon" in taken,
        "time_limit": drawn and classifier.inference == "auto",
        **dict.fromkeys(("sampler", "n_steps", "n_chains"), drawn),
    }
    return [name for name, has_effect in counts.items() if not has_effect]


def refuse_unused(classifier: GraphClassifier) -> None:
    """Refuse a number of a prior, a graph or a model that was not chosen."""
    for name in _set_in_vain(classifier):
        if name in OF_ONE_CHOICE:
            raise SettingError(name, f"makes no difference here: it is for {OF_ONE_CHOICE[name]}. Leave it out.")


def refuse_ignored(classifier: GraphClassifier, n_classes: int) -> None:
    """Refuse what was set, and makes no difference with so many classes."""
    for name in _set_in_vain(classifier, n_classes):
        raise SettingError(name, f"makes no difference here, with {n_classes} classes: leave it out.")


def _set_in_vain(classifier: GraphClassifier, n_classes: int | None = None) -> list[str]:
    """The settings without effect that are not as usual."""
    usual = type(classifier)()
    return [
        name for name in without_effect(classifier, n_classes) if getattr(classifier, name) != getattr(usual, name)
    ]


def refuse_ignored_noise(model: Any) -> None:
    """Refuse a number of a given model that a learned prior would learn instead."""
    for each in fields(model) if is_dataclass(model) else ():
        value = getattr(model, each.name)
        if each.name in ("gamma", "delta") and value != each.default:
            raise SettingError(
                "model",
                f"has {each.name} = {value:g}, and a learned prior learns it instead: give gamma to GraphClassifier to fix "
                "the noise, or choose another prior, such as 'matern', under which the model is taken as it is.",
            )


def make_graph(classifier: GraphClassifier, X: Any) -> graphs.Graph | graphs.LowRankGraph:
    """The similarity graph that a classifier asks for."""
    named, (n_rows, n_features) = classifier.graph, X.shape
    if callable(named):
        made = named(X)
        made = made if isinstance(made, graphs.Graph | graphs.LowRankGraph) else graphs.precomputed(made)
        if made.n_nodes != n_rows:
            raise ValueError(f"The graph has {made.n_nodes} nodes and X has {n_rows} rows: they must be the same.")
        return made
    if named == "precomputed":
        return graphs.precomputed(X)
    if named == "cosine":
        return graphs.cosine(X, progress=shows_bars(classifier))
    settings: dict[str, Any] = {
        "n_components": classifier.n_components,
        "robust": _in_robust_units(classifier, X),
    }
    if classifier.n_components is None and issparse(X) and min(n_rows, n_features) > 2:
        settings["n_components"] = min(SPARSE_COMPONENTS, n_rows - 1, n_features - 1)
    if named in ("gaussian", "nystrom"):
        settings["tau"] = classifier.width
    if named in ("knn", "nystrom"):
        given = classifier.random_state  # the number itself, or one drawn
        settings["seed"] = int(given) if isinstance(given, Integral) else seed_of(classifier)
    if named == "gaussian":
        return graphs.gaussian(X, **settings)
    if named == "nystrom":
        return graphs.nystrom(X, n_landmarks=min(N_LANDMARKS, n_rows), progress=shows_bars(classifier), **settings)
    if isinstance(X, Tall):
        numbers = NEIGHBOR_COPIES * n_features + NEIGHBOR_MATRICES * classifier.n_neighbors
        check_room(
            n_rows * (8.0 * numbers + MODE_BYTES * first_modes(classifier, n_rows)),
            f"The graph of nearest neighbors of {n_rows:,} rows, with its eigenvectors,",
            "Use fewer n_modes, or the graph cosine or nystrom.",
        )
    n_neighbors = min(classifier.n_neighbors, n_rows - 1)
    if n_neighbors < classifier.n_neighbors:
        told = f"is {classifier.n_neighbors:,}, and there are {n_rows:,} rows: all others are neighbors of each."
        warn(SettingWarning("n_neighbors", told))
    build = graphs.knn if named == "knn" else graphs.self_tuning
    return build(X, n_neighbors=n_neighbors, **settings)


def _in_robust_units(classifier: GraphClassifier, X: Any) -> bool:
    """Whether features are compared in robust units, which is told where nobody asked for it."""
    looks = classifier.graph in ("knn", "self_tuning")
    if classifier.scale != "auto" or issparse(X) or (isinstance(X, Tall) and not looks):
        return bool(classifier.scale == "robust")
    found = unlike_columns(X, getattr(classifier, "feature_names_in_", ()))
    if found and not looks:
        warn(
            f'{found}, so that a few of them decide which rows are similar: use scale="robust", with a width of about 1, or '
            "bring columns to one scale first.",
        )
        return False
    if found:
        warn(
            f'{found}: the graph compares them in robust units. Ask for that by scale="robust", or take them as they are by '
            'scale="none", and nothing is said.',
        )
    return bool(found)


def seed_of(classifier: GraphClassifier) -> int:
    """The seed of all draws in a fit."""
    return int(_random(classifier).randint(np.iinfo(np.int32).max))


def _random(classifier: GraphClassifier) -> np.random.RandomState:
    try:
        found: np.random.RandomState = check_random_state(classifier.random_state)
    except (TypeError, ValueError):
        told = "must be a whole number between 0 and 4294967295, a RandomState or None"
        raise SettingError("random_state", f"{told}, got {called(classifier.random_state)}.") from None
    return found


def shows_bars(classifier: GraphClassifier) -> bool | None:
    """Whether long stages show how far they are: in a file bars would be a mess."""
    return None if classifier.verbose is None else bool(classifier.verbose) and sys.stderr.isatty()


def make_spectrum(
    classifier: GraphClassifier,
    graph: graphs.Graph | graphs.LowRankGraph,
    *,
    n_modes: int | None = None,
    start: Spectrum | None = None,
) -> Spectrum:
    """Its eigenpairs, as many as the prior asks for, or fewer; found from those of a start."""
    if isinstance(graph, graphs.LowRankGraph):
        most = classifier.n_modes if classifier.graph == "nystrom" else None  # of cosines there are few
        return spectrum.low_rank(graph, at_most=most, progress=shows_bars(classifier))
    L = laplacian.normalized(graph)
    if classifier.prior == "full":
        return spectrum.dense(L)
    return spectrum.leading(
        L,
        n_modes=min(n_modes or classifier.n_modes, graph.n_nodes),
        tolerance=LEARNED_TOLERANCE if classifier.prior == "learned" else 1e-6,
        progress=shows_bars(classifier),
        start=start,
    )


def first_modes(classifier: GraphClassifier, n_nodes: int) -> int:
    """How many modes to begin with: few where a learned prior may do with few, of a graph on which more cost time."""
    on_demand = classifier.prior == "learned" and n_nodes >= ON_DEMAND_FROM
    return max(2, classifier.n_modes // 4) if on_demand else int(classifier.n_modes)


def modes_that_fit(n_nodes: int) -> int:
    """How many modes there is memory for."""
    return int(room() / (MODE_BYTES * n_nodes))


def make_prior(classifier: GraphClassifier, modes: Spectrum) -> GaussianPrior:
    """The prior that a classifier asks for, if it is not to be learned."""
    if callable(classifier.prior):
        made: GaussianPrior = classifier.prior(modes)
        expect(made, GaussianPrior, "What the function given as prior returns", "a prior, such as prior.matern's")
        return made
    if classifier.prior == "matern":
        return priors.matern(modes, tau=classifier.tau, alpha=classifier.alpha)
    named: GaussianPrior = getattr(priors, classifier.prior)(modes)
    return named
