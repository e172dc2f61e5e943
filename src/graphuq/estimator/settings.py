"""The parameters of a classifier in; checks of them, and the graph, spectrum and prior that they define, out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
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
from graphuq.prior import GaussianPrior
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

GRAPHS = ("knn", "self_tuning", "gaussian", "nystrom", "cosine", "precomputed")
# Graphs built from distances, which depend on the units of the columns.
COMPARES_COLUMNS = GRAPHS[:4]
SCALES = ("auto", "robust", "none")
PRIORS = ("learned", "matern", "approximate", "project", "full")
INFERENCES = ("auto", "ep", "sample")
# Eigensolver tolerance for a learned prior: a smaller one changed no probability by 5e-5 on seven data sets.
LEARNED_TOLERANCE = 1e-3
# Number of rows from which modes are computed on demand; on smaller graphs, all take a fraction of a second.
ON_DEMAND_FROM = 2_000
# Default number of principal components for sparse features, such as word counts: on four collections of texts they
# did as well as all words, and 100 much worse.
SPARSE_COMPONENTS = 300
# Sparse features are compared by direction, as word counts, if there are at least this many.
FEWEST_WORDS = 20
# Landmarks of "nystrom"; at most the number of rows.
N_LANDMARKS = 500
# With more components than this, not all get an eigenvector: for 10,000 rows these would take 0.6 GB.
MOST_COMPONENTS = 2_000
# Eigensolver bytes per mode and node: three blocks in single precision, a third wider, and two in double.
MODE_BYTES = 32
# Memory of building a k-nearest-neighbor graph, in copies of the features and of the neighbor matrix.
NEIGHBOR_COPIES, NEIGHBOR_MATRICES = 2, 12
# The sum of rounded class shares may differ from 1 by this much.
SHARES_SUM = 0.02
# Number of classes that an error lists.
MOST_LISTED = 10
# Parameters of the graph and its eigenpairs, besides the prior.
OF_GRAPH = ("graph", "n_neighbors", "width", "n_components", "scale", "n_modes", "random_state")
MAY_BE_NONE = ("width", "gamma")
# Parameters that only these choices use. Others, such as `n_neighbors`, may stay set while a search tries several
# graphs, and those of the sampler are also used by `draw`.
OF_ONE_CHOICE = {
    "width": 'graph="gaussian" and graph="nystrom"',
    "tau": 'prior="matern"',
    "alpha": 'prior="matern"',
    "epsilon": 'model="ginzburg_landau"',
}


def check_settings(classifier: GraphClassifier) -> None:
    """Raise an error that says what is allowed if a parameter has an unknown value or is out of range."""
    for name, value, allowed, other in (
        ("graph", classifier.graph, GRAPHS, "a function of X that makes a graph"),
        ("prior", classifier.prior, PRIORS, "a function of a spectrum that makes a prior"),
        ("model", classifier.model, tuple(MODELS), "a model without labels, or a class of one"),
        ("inference", classifier.inference, INFERENCES, None),
        ("scale", classifier.scale, SCALES, None),
    ):
        named = isinstance(value, str)
        message = f"must be one of {', '.join(allowed)}{f', or {other}' if other else ''}, got {called(value)}."
        if (named or other is None) and not (named and value in allowed):
            raise SettingError(name, message)
        if not named and name in ("graph", "prior") and not callable(value):
            raise SettingTypeError(name, message)
        if name == "model" and isinstance(value, type) and not hasattr(value, "phi"):
            raise SettingTypeError(name, message)
    if classifier.sampler is not None:
        expect_sampler(classifier.sampler)
    _random(classifier)
    if not isinstance(classifier.verbose, int | np.bool_ | None):
        raise SettingTypeError("verbose", f"must be True, False or None, got {called(classifier.verbose)}.")
    for name, least in (("n_modes", 2), ("n_neighbors", 1), ("n_steps", 1), ("n_chains", 1)):
        expect_whole(getattr(classifier, name), name, least)
    for name in ("width", "gamma", "epsilon", "tau", "alpha"):
        if (number := getattr(classifier, name)) is not None or name not in MAY_BE_NONE:
            number = expect_number(number, name)
            # compared with u and with eigenvalues, both of order one; width is squared
            low, high = ("1e-150", "1e150") if name == "width" else ("1e-9", "1e9")
            if not float(low) <= number <= float(high):
                raise SettingError(name, f"must lie between {low} and {high}, got {number:g}.")
    if not isinstance(limit := classifier.time_limit, Real) or not limit > 0:
        raise SettingError("time_limit", f"must be a number above 0, of seconds, got {called(limit)}.")
    if classifier.graph in ("gaussian", "nystrom") and classifier.width is None:
        raise SettingError(
            "width", f"must be given for {classifier.graph} weights: the distance at which rows count as similar."
        )


def without_effect(classifier: GraphClassifier, n_classes: int | None = None) -> list[str]:
    """The parameters that have no effect given the other ones.

    If the number of classes is given, or known from a fit, includes those without effect for this number.
    """
    graph, prior = classifier.graph, classifier.prior
    template = unlabeled(classifier.model, classifier)
    # a model passed as an object takes no parameters, and may offer no evidence
    by_name = template is not classifier.model
    n_classes = n_classes or len(getattr(classifier, "classes_", ()))
    if by_name and n_classes:
        template = replace(template, n_fields=1 if n_classes == 2 else n_classes)
    parameters = template.numbers if by_name else ()
    by_ep = prior == "learned" and by_name and template.offers("sites", "hyperprior")
    samples = classifier.inference == "sample" or (classifier.inference == "auto" and not by_ep)
    used = {
        "width": graph in ("gaussian", "nystrom"),
        "n_neighbors": graph in ("knn", "self_tuning"),
        "n_components": graph in COMPARES_COLUMNS,
        "scale": graph in COMPARES_COLUMNS,
        "n_modes": graph != "cosine" and prior != "full",
        "tau": prior == "matern",
        "alpha": prior == "matern",
        "gamma": "gamma" in parameters,
        "epsilon": "epsilon" in parameters,
        "time_limit": samples and classifier.inference == "auto",
        **dict.fromkeys(("sampler", "n_steps", "n_chains"), samples),
    }
    return [name for name, is_used in used.items() if not is_used]


def known_shares(classifier: GraphClassifier, classes: NDArray[Any]) -> NDArray[np.float64] | None:
    """The known shares of the classes, in their order and adding up to 1, or None; keys are compared as text."""
    shares = classifier.class_shares
    if shares is None:
        return None
    if isinstance(shares, str) and shares == "equal":
        return np.full(len(classes), 1 / len(classes))
    if not isinstance(shares, Mapping):
        message = f"must be None, 'equal', or the share of each class by its name, got {called(shares)}."
        raise (SettingError if isinstance(shares, str) else SettingTypeError)("class_shares", message)
    names, by_name = [str(name) for name in classes], {str(name): share for name, share in shares.items()}
    if set(by_name) != set(names):
        odd = sorted(set(by_name) ^ set(names))[0]
        finding = f"lacks {odd!r}" if odd in names else f"names {odd!r}, and no label is of that class"
        listed = ", ".join(names[:MOST_LISTED]) + (", ..." if len(names) > MOST_LISTED else "")
        raise SettingError("class_shares", f"{finding}: give the share of each of {listed}.")
    for name in names:
        expect_number(by_name[name], f"class_shares[{name!r}]")
    values = np.array([by_name[name] for name in names], dtype=np.float64)
    if abs(values.sum() - 1) > SHARES_SUM:
        raise SettingError("class_shares", f"must add up to 1, got the sum {values.sum():.4g}.")
    return values / values.sum()


def refuse_unused(classifier: GraphClassifier, n_classes: int | None = None) -> None:
    """Raise an error if a parameter is set whose graph, prior or model was not chosen.

    If the number of classes is given, raise it for any parameter that is set and has no effect.
    """
    defaults = type(classifier)()
    for name in without_effect(classifier, n_classes):
        if getattr(classifier, name) == getattr(defaults, name):
            continue
        if n_classes is not None:
            raise SettingError(name, f"makes no difference here, with {n_classes} classes: leave it out.")
        if name in OF_ONE_CHOICE:
            raise SettingError(name, f"makes no difference here: it is for {OF_ONE_CHOICE[name]}. Leave it out.")


def made_with(classifier: GraphClassifier) -> dict[str, Any]:
    """The parameters that the graph, its eigenpairs and the feature columns of a prior depend on.

    Priors that are neither learned nor full share the same eigenpairs.
    """
    prior = classifier.prior if classifier.prior in ("learned", "full") else "given"
    return {name: getattr(classifier, name) for name in OF_GRAPH} | {"prior": prior}


def refuse_changed(classifier: GraphClassifier) -> None:
    """Raise an error if a parameter changed since `fit` that its graph, eigenpairs or feature columns depend on."""
    for name, value in made_with(classifier).items():
        before = classifier._seen.made_with[name]
        if value is not before and value != before:
            now = getattr(classifier, name)
            raise SettingError(
                name, f"is now {now!r}, and the graph or its eigenvectors were made for another: call fit."
            )


def refuse_ignored_noise(model: Any) -> None:
    """Raise an error if a model object sets noise parameters that a learned prior would override."""
    for parameter in fields(model) if is_dataclass(model) else ():
        value = getattr(model, parameter.name)
        if parameter.name in ("gamma", "delta") and value != parameter.default:
            raise SettingError(
                "model",
                f"has {parameter.name} = {value:g}, and a learned prior learns it instead: give gamma to GraphClassifier to fix "
                "the noise, or choose another prior, such as 'matern', under which the model is taken as it is.",
            )


def make_graph(classifier: GraphClassifier, X: Any) -> graphs.Graph | graphs.LowRankGraph:
    """Build the similarity graph."""
    graph, (n_rows, n_features) = classifier.graph, X.shape
    if callable(graph):
        own = graph(X)
        own = own if isinstance(own, graphs.Graph | graphs.LowRankGraph) else graphs.precomputed(own)
        if own.n_nodes != n_rows:
            raise ValueError(f"The graph has {own.n_nodes} nodes and X has {n_rows} rows: they must be the same.")
        return own
    if graph == "precomputed":
        return graphs.precomputed(X)
    if graph == "cosine":
        return graphs.cosine(X, progress=shows_bars(classifier))
    settings: dict[str, Any] = {
        "n_components": classifier.n_components,
        "robust": _in_robust_units(classifier, X),
    }
    if classifier.n_components is None and issparse(X):
        settings["n_components"] = min(SPARSE_COMPONENTS, max(1, n_rows - 1), n_features)
    if graph in ("gaussian", "nystrom"):
        settings["tau"] = classifier.width
    if graph in ("knn", "nystrom"):
        random_state = classifier.random_state  # used as it is if it is a number
        settings["seed"] = int(random_state) if isinstance(random_state, Integral) else seed_of(classifier)
    if graph == "gaussian":
        return graphs.gaussian(X, **settings)
    if graph == "nystrom":
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
        text = f"is {classifier.n_neighbors:,}, and there are {n_rows:,} rows: all others are neighbors of each."
        warn(SettingWarning("n_neighbors", text))
    settings["unit_length"] = issparse(X) and classifier.scale == "auto" and n_features >= FEWEST_WORDS
    build = graphs.knn if graph == "knn" else graphs.self_tuning
    return build(X, n_neighbors=n_neighbors, **settings)


def _in_robust_units(classifier: GraphClassifier, X: Any) -> bool:
    """Whether the graph compares features in robust units; with scale="auto", warns of unlike columns."""
    may_rescale = classifier.graph in ("knn", "self_tuning")
    if classifier.scale != "auto" or issparse(X) or (isinstance(X, Tall) and not may_rescale):
        return bool(classifier.scale == "robust")
    finding = unlike_columns(X, getattr(classifier, "feature_names_in_", ()))
    if finding and not may_rescale:
        warn(
            f'{finding}, so that a few of them decide which rows are similar: use scale="robust", with a width of about 1, or '
            "bring columns to one scale first.",
        )
        return False
    if finding:
        warn(
            f'{finding}: the graph compares them in robust units. Set scale="robust" to do so without this warning, or '
            'scale="none" to compare them as they are.',
        )
    return bool(finding)


def seed_of(classifier: GraphClassifier) -> int:
    """The random seed of a fit."""
    return int(_random(classifier).randint(np.iinfo(np.int32).max))


def _random(classifier: GraphClassifier) -> np.random.RandomState:
    try:
        generator: np.random.RandomState = check_random_state(classifier.random_state)
    except (TypeError, ValueError):
        message = "must be a whole number between 0 and 4294967295, a RandomState or None"
        raise SettingError("random_state", f"{message}, got {called(classifier.random_state)}.") from None
    return generator


def shows_bars(classifier: GraphClassifier) -> bool | None:
    """Whether stages show progress bars: if verbose, in a terminal only; None if verbose is None."""
    return None if classifier.verbose is None else bool(classifier.verbose) and sys.stderr.isatty()


def make_spectrum(
    classifier: GraphClassifier,
    graph: graphs.Graph | graphs.LowRankGraph,
    *,
    n_modes: int,
    start: Spectrum | None = None,
) -> Spectrum:
    """Eigenpairs of the graph, `n_modes` or as many as the prior needs; `start` warm-starts the eigensolver."""
    if isinstance(graph, graphs.LowRankGraph):
        most = classifier.n_modes if classifier.graph == "nystrom" else None  # a cosine graph has few modes
        return spectrum.low_rank(graph, at_most=most, progress=shows_bars(classifier))
    L = laplacian.normalized(graph)
    if classifier.prior == "full":
        return spectrum.dense(L)
    if n_modes <= L.n_components:  # each has its own eigenvector; differences within need more
        n_modes = _with_all_components(L.n_components, n_modes, graph.n_nodes)
    return spectrum.leading(
        L,
        n_modes=min(n_modes, graph.n_nodes),
        tolerance=LEARNED_TOLERANCE if classifier.prior == "learned" else 1e-6,
        progress=shows_bars(classifier),
        start=start,
    )


def _with_all_components(n_components: int, n_modes: int, n_nodes: int) -> int:
    """More modes than components, so that none is left out; `n_modes` and a warning if that would be very many."""
    wanted = n_components + n_modes // 4
    if wanted <= min(MOST_COMPONENTS, modes_that_fit(n_nodes)):
        return wanted
    warn(
        f"The graph falls into {n_components:,} components, too many for all to take part: in most of them, a label tells "
        "of other rows through the features alone. Join more neighbors, or fit repeated rows once.",
    )
    return n_modes


def first_modes(classifier: GraphClassifier, n_nodes: int) -> int:
    """Number of modes to compute first: a quarter of `n_modes` for a learned prior on a large graph."""
    on_demand = classifier.prior == "learned" and n_nodes >= ON_DEMAND_FROM
    return max(2, classifier.n_modes // 4) if on_demand else int(classifier.n_modes)


def modes_that_fit(n_nodes: int) -> int:
    """Number of modes that fit into memory."""
    return int(room() / (MODE_BYTES * n_nodes))


def make_prior(classifier: GraphClassifier, modes: Spectrum) -> GaussianPrior:
    """Build the prior, unless it is to be learned."""
    if callable(classifier.prior):
        own: GaussianPrior = classifier.prior(modes)
        expect(own, GaussianPrior, "What the function given as prior returns", "a prior, such as prior.matern's")
        return own
    if classifier.prior == "matern":
        return priors.matern(modes, tau=classifier.tau, alpha=classifier.alpha)
    prior: GaussianPrior = getattr(priors, classifier.prior)(modes)
    return prior
