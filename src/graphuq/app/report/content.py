"""A fitted classifier in; all numbers and sentences of its report, ready to be shown, out.

No inference happens here: everything comes from the classifier and its posterior, of whichever kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import calibration, uncertainty
from graphuq.app.report import plots
from graphuq.app.report.palette import SHAPES
from graphuq.app.report.words import Suspicious, by_the_truth, measures, sentences, tiles
from graphuq.app.wording import share, verdict
from graphuq.estimator import GraphClassifier
from graphuq.estimator.settings import without_effect
from graphuq.graph.distances import nearest_among
from graphuq.inference.diagnostics import Diagnostics
from graphuq.posterior import Draws, Mixture, Posterior
from graphuq.posterior.left_out import MAX_LEFT_OUT, SelfCheck, self_check, suspicious_labels

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

MAX_POINTS = 4000  # dots that a browser on a phone can draw and search instantly
MAX_CELLS = 16  # cells of a row in a tooltip
# Cells of a row that can be unfolded, and cells of all rows kept in memory: more rows have fewer columns.
MAX_COLUMNS, MOST_CELLS = 100, 1_000_000
N_NEAREST = 3
N_TOLD = 3  # classes whose probability is given at a row
N_LISTED = 20
VAGUE = 10.0  # a hyper-parameter known only to this factor is hardly known
IN_WORDS = {
    "gamma": "noise of the labels (gamma)",
    "tau": "how far similarity reaches on the graph: less is farther (tau)",
    "alpha": "smoothness along the graph (alpha)",
    "graph": "how much the graph says, beside the noise (graph)",
    "linear": "how much a linear function of the features says (linear)",
    "bent": "how much a bent function of the features says (bent)",
    "constant": "how much more frequent one class may be (constant)",
    "mistakes": "share of labels that are mistakes (mistakes)",
    "epsilon": "width of the wells (epsilon)",
}


@dataclass(frozen=True, eq=False)
class TableRows:
    """How the rows of a classifier are presented to people.

    Attributes:
        names: one name per row.
        columns: names of the features to show; see `n_columns_shown`.
        cells: their values as text, one list per row.
        n_left_out: number of features that are not shown.
        pictures: gray values 0 to 255, shape (n_rows, height, width), if rows are images.
        truth: index of the true class in `classes_`, -1 where unknown, shape (n_rows,).
    """

    names: Sequence[str] = field(repr=False)
    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = field(default=(), repr=False)
    n_left_out: int = field(default=0, repr=False)
    pictures: NDArray[np.uint8] | None = field(default=None, repr=False)
    truth: NDArray[np.int64] | None = field(default=None, repr=False)


def n_columns_shown(n_rows: int, n_columns: int) -> int:
    """Number of features of a table to show."""
    return min(n_columns, MAX_COLUMNS, max(MAX_CELLS, MOST_CELLS // n_rows))


@dataclass(frozen=True, eq=False)
class Content:
    """The contents of a report: sentences, tables, and the numbers behind its plots.

    Attributes:
        self_check: verdict of leave-one-out over the labels; None if not available.
        truth_check: verdict against the true classes; None if they are unknown.
        nodes: data of each row that is drawn or listed: `p` holds pairs of a class and its probability, the most
            probable first; `label` and `truth` are -1 if there is none; `error` is None without draws, or with too few.
        found: number of unlabeled rows predicted in each class.
        nearest: the labeled rows most similar to each row that is listed or suspicious, nearest first; empty if
            rows have no features.
        graph_weight: for a learned prior, total weight of the mixture components that use the graph; 1 otherwise.
        convergence: for draws: monitored quantity, its row, R-hat, effective sample size in the bulk and in the
            tails.
        components: for a mixture: weight, prior, and parameters of the model.
        suspicious: None if labels were not checked.
        rests_on: how the predictions depend on the hyper-parameters, in words.
        confusion: counts by true class (rows) and predicted class (columns).
    """

    title: str
    classes: tuple[str, ...]
    sentences: list[str]
    self_check: str | None
    truth_check: str | None
    tiles: list[tuple[str, str]]
    found: list[int]
    least_certain: Nodes
    most_certain: Nodes
    nodes: list[dict[str, Any]]
    nearest: dict[int, list[int]]
    graph_weight: float
    plots: dict[str, Any]
    notes: list[str]
    verdict: str
    converged: bool
    convergence: list[tuple[str, str, float, float, float]]
    components: list[tuple[float, str, str]]
    suspicious: list[Suspicious] | None
    rests_on: str
    hyperparameters: list[tuple[str, str, str]]
    calibration: list[tuple[str, str]]
    confusion: NDArray[np.int64] | None
    settings: list[tuple[str, str]]
    rows: TableRows = field(repr=False)


def collect(
    classifier: GraphClassifier,
    rows: TableRows,
    *,
    title: str,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Content:
    """Compute the contents of the report of a fitted classifier.

    `settings` are facts about the run that the classifier does not know, and `notes` the warnings of the fit.
    """
    posterior, labels, p = classifier.posterior_, classifier.labels_, classifier.label_distributions_
    classes = tuple(str(name) if str(name).strip() else "(blank)" for name in classifier.classes_)
    predicted = uncertainty.most_probable(p)
    unlabeled = np.setdiff1d(np.arange(len(p)), labels.nodes)
    ranked = uncertainty.ranked(p, among=unlabeled)
    least, most = ranked[:N_LISTED], ranked[::-1][:N_LISTED]
    shown = _shown(ranked, labels.nodes)
    judged = confusion = None
    if rows.truth is not None and (known := unlabeled[rows.truth[unlabeled] >= 0]).size:
        judged = calibration.summary(p[known], rows.truth[known])
        confusion = calibration.confusion(p[known], rows.truth[known])
    diagnosis = posterior.diagnostics()
    suspicious, left_out_check = _check_labels(posterior)
    doubtful = np.array([label.node for label in suspicious or ()], dtype=np.int64)
    nearest = _nearest(classifier, np.concatenate([least, most, doubtful]), shown)
    # their pictures come first, in case the page cannot hold all
    first = list(dict.fromkeys([*least, *most, *doubtful, *(node for near in nearest.values() for node in near)]))
    uses_graph, uses_features = _weights_of_parts(classifier)
    traces, convergence = [], []
    if isinstance(posterior, Draws) and isinstance(diagnosis, Diagnostics):
        traces = plots.traces(posterior, diagnosis, predicted)
        convergence = _convergence(diagnosis, classes, rows)
    return Content(
        title=title,
        classes=classes,
        sentences=sentences(
            classes, labels.counts(), p, unlabeled, judged, suspicious, diagnosis.converged, left_out_check
        ),
        self_check=None if left_out_check is None else str(left_out_check),
        truth_check=None if judged is None else by_the_truth(judged),
        tiles=tiles(p, len(labels.nodes), unlabeled, judged),
        found=np.bincount(predicted[unlabeled], minlength=len(classes)).tolist(),
        least_certain=least,
        most_certain=most,
        nodes=_nodes(shown, classifier, rows),
        nearest=nearest,
        graph_weight=uses_graph,
        plots={
            "classes": classes,
            "shapes": SHAPES,
            "embedding": plots.embedding(classifier.spectrum_, p, shown),
            "confidence": plots.confidence(p[unlabeled]),
            "traces": traces,
            "reliability": None if judged is None else plots.reliability(judged.reliability),
            "pictures": plots.pictures(
                rows.pictures, np.array([*first, *np.setdiff1d(shown, first)], dtype=np.int64)
            ),
            "columns": list(rows.columns[:MAX_CELLS]),
        },
        notes=list(notes),
        verdict=verdict(diagnosis),
        converged=diagnosis.converged,
        convergence=convergence,
        components=_components(posterior),
        suspicious=suspicious,
        rests_on=_rests_on(posterior, uses_graph, uses_features),
        hyperparameters=_hyperparameters(classifier),
        calibration=[] if judged is None else measures(judged),
        confusion=confusion,
        settings=_settings(classifier, settings),
        rows=rows,
    )


def _shown(ranked: Nodes, labeled: Nodes) -> Nodes:
    """The nodes to draw: all, or the labeled, the least and most certain, and a random sample of the others."""
    if ranked.size + labeled.size <= MAX_POINTS:
        return np.sort(np.concatenate([ranked, labeled]))
    extremes = np.concatenate([ranked[:500], ranked[-N_LISTED:]])
    first = np.concatenate([labeled[: MAX_POINTS // 2], extremes])
    rng, others = np.random.default_rng(0), np.setdiff1d(ranked, first)
    return np.sort(np.concatenate([first, rng.choice(others, MAX_POINTS - len(first), replace=False)]))


def _nodes(shown: Nodes, classifier: GraphClassifier, rows: TableRows) -> list[dict[str, Any]]:
    """The entry of each node that is drawn or listed."""
    p = classifier.label_distributions_[shown]
    label = np.full(classifier.graph_.n_nodes, -1)
    label[classifier.labels_.nodes] = classifier.labels_.y
    truth = np.full_like(label, -1) if rows.truth is None else rows.truth
    predicted = uncertainty.most_probable(p)
    error = np.full(len(shown), np.nan)
    if isinstance(classifier.posterior_.components[0], Draws):
        error = classifier.label_errors_[shown, predicted]
    # The predicted class comes first, even if another is equally probable.
    order = np.argsort(np.where(np.arange(p.shape[1]) == predicted[:, None], -2.0, -p), axis=1, kind="stable")
    return [
        {
            "node": int(node),
            "name": rows.names[node],
            "p": [[int(k), round(float(p[i, k]), 6)] for k in order[i, :N_TOLD]],
            "class": int(predicted[i]),
            "confidence": round(float(p[i, predicted[i]]), 6),
            "error": round(float(error[i]), 5) if np.isfinite(error[i]) else None,
            "label": int(label[node]),
            "truth": int(truth[node]),
            "cells": list(rows.cells[node][:MAX_CELLS]) if rows.cells else [],
        }
        for i, node in enumerate(shown)
    ]


def _nearest(classifier: GraphClassifier, listed: Nodes, shown: Nodes) -> dict[int, list[int]]:
    """The nearest labeled rows of each listed row, among those that are drawn and without the row itself."""
    features = getattr(classifier.graph_, "features", None)
    labeled = np.intersect1d(classifier.labels_.nodes, shown)
    if features is None or not len(labeled):
        return {}
    neighbors = nearest_among(features.points, listed, labeled, N_NEAREST + 1).tolist()
    return {
        node: [other for other in near if other != node][:N_NEAREST]
        for node, near in zip(listed.tolist(), neighbors, strict=True)
    }


def _convergence(
    diagnosis: Diagnostics, classes: Sequence[str], rows: TableRows
) -> list[tuple[str, str, float, float, float]]:
    """Convergence statistics, with the names of monitored quantities: u, or u of a class."""
    fields = {f"u{k}": f"u of {name}" for k, name in enumerate(classes)}
    numbers = zip(
        diagnosis.names, diagnosis.nodes, diagnosis.r_hat, diagnosis.ess_bulk, diagnosis.ess_tail, strict=True
    )
    return [
        (
            fields.get(kind := name.partition(" at ")[0], kind),
            rows.names[node] if node >= 0 else "",
            float(r_hat),
            float(bulk),
            float(tail),
        )
        for name, node, r_hat, bulk, tail in numbers
    ]


def _components(posterior: Posterior) -> list[tuple[float, str, str]]:
    """Weight, prior and model parameters of each mixture component, heaviest first."""
    if not isinstance(posterior, Mixture):
        return []

    def numbers(model: Any) -> str:
        parameters = {name: value for name, value in vars(model).items() if isinstance(value, float)}
        return ", ".join(f"{name} {value:.3g}" for name, value in parameters.items())

    return [
        (float(weight), component.prior.name, numbers(component.model))
        for weight, component in zip(posterior.weights, posterior.components, strict=True)
    ]


def _check_labels(posterior: Posterior) -> tuple[list[Suspicious] | None, SelfCheck | None]:
    """Suspicious labels and the self-check by leave-one-out; None if unavailable or too slow."""
    model = posterior.model
    if not model.offers("sites", "y") or len(model.nodes) > MAX_LEFT_OUT:
        return None, None
    left_out = posterior.left_out()
    found = suspicious_labels(posterior, left_out=left_out)
    clear = [
        Suspicious(int(found.nodes[j]), int(found.y[j]), int(found.likelier[j]), float(1 - found.probability[j]))
        for j in found.clear()
    ]
    return clear, self_check(posterior, left_out=left_out)


def _weights_of_parts(classifier: GraphClassifier) -> tuple[float, float]:
    """Total weights of the mixture components whose prior uses the graph, and a function of the features."""
    posterior, columns = classifier.posterior_, classifier._seen.columns
    if not classifier._seen.learned:
        return 1.0, 0.0
    # columns of a learned prior (`learned_basis`): features, the constant, eigenvectors
    n_linear = 0 if columns is None else columns.shape[1]
    priors = [component.prior for component in posterior.components]
    graph = [prior.columns.stop > n_linear + 1 for prior in priors]
    features = [prior.columns.start < n_linear for prior in priors]
    return round(float(posterior.weights @ graph), 9), round(float(posterior.weights @ features), 9)


def _rests_on(posterior: Posterior, uses_graph: float, uses_features: float) -> str:
    """A sentence on how the predictions depend on the hyper-parameters."""
    if not isinstance(posterior, Mixture) or len(posterior.components) == 1:
        return "Numbers of the model."
    return (
        "Numbers of the model; those learned are the most plausible ones. The answers are an average over "
        f"{len(posterior.components)} choices, listed under “Can the computation be trusted?”: by weight, "
        f"{share(uses_graph)} of them use the graph and {share(uses_features)} a function of the features."
    )


def _hyperparameters(classifier: GraphClassifier) -> list[tuple[str, str, str]]:
    """Name, value and origin of each hyper-parameter."""
    spread = classifier.hyperparameter_spread_
    in_units_of_noise = isinstance(classifier.posterior_, Mixture) and classifier.gamma is None

    def source(name: str) -> str:
        if spread.get(name, 1.0) < 1.001:  # the same value in all mixture components
            return "the unit of the others" if name == "gamma" and in_units_of_noise else "fixed, not learned"
        if spread[name] < VAGUE:
            return f"learned, to a factor of {spread[name]:.2g}"
        return f"learned, but hardly known (to a factor of {float(f'{spread[name]:.2g}'):,.0f})"

    return [
        (IN_WORDS.get(name, name), f"{value:.4g}", source(name))
        for name, value in classifier.hyperparameters_.items()
    ]


def _settings(classifier: GraphClassifier, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters that have an effect and facts about the run, without the hyper-parameters."""
    posterior, modes = classifier.posterior_, classifier.spectrum_
    first = posterior.components[0]
    how = "expectation propagation"
    if isinstance(first, Draws):
        how = f"{first.settings.get('sampler')}, {first.n_chains} chains x {first.n_draws} draws"
    left_out = {"verbose", *without_effect(classifier), *classifier.hyperparameters_}
    facts = {
        **{name: value for name, value in classifier.get_params().items() if name not in left_out},
        **({} if isinstance(posterior, Mixture) else {"prior of u": posterior.prior.name}),
        "eigenpairs": f"{modes.n_modes} by {modes.method}",
        "connected components": modes.n_components,
        "answers by": how,
        **({"temperature": f"{posterior.temperature:.3g}"} if isinstance(posterior, Mixture) else {}),
        **settings,
    }
    return [(name, "not set" if value is None else str(value)) for name, value in facts.items()]
