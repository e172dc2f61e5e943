"""A fitted classifier in; every number and sentence of its report, ready to be shown, out."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import calibration
from graphuq.estimator import GraphClassifier
from graphuq.inference.ep import propagate
from graphuq.inference.sites import Sites
from graphuq.models import GinzburgLandau
from graphuq.posterior import LabelStatistics, Posterior
from graphuq.settings import without_effect
from graphuq.wording import VAGUE, verdict

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

MAX_POINTS = 4000  # dots that a browser draws and searches at once on a phone
MAX_CELLS = 16  # cells of a row that fit beside a pointer
MAX_PICTURE_BYTES = 4_000_000
N_LISTED = 20
N_MARGINALS = 6  # least and most certain, as in Fig. 7 of the paper
N_AXES = 4
N_TRACE = 100
# A label is called suspicious when the others give it less than this.
SUSPICIOUS = 0.2
MAX_CHECKED_LABELS = 2000  # leaving each out costs their number cubed
SURE, UNSURE = 0.95, 0.7


@dataclass(frozen=True, eq=False)
class Rows:
    """What people know the rows of a classifier by.

    Attributes:
        names: one name a row.
        columns: names of the features to show.
        cells: their values as text, one list a row.
        pictures: gray values 0 to 255, shape (n_rows, height, width), where rows are images.
        truth: the true label where it is known, -1 or +1, else 0, shape (n_rows,).
    """

    names: Sequence[str]
    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = ()
    pictures: NDArray[np.uint8] | None = None
    truth: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Content:
    """What a report says: sentences, tables for the page, and numbers for its plots."""

    title: str
    classes: tuple[str, str]
    sentences: list[str]
    tiles: list[tuple[str, str]]
    least_certain: Nodes
    most_certain: Nodes
    nodes: list[dict[str, Any]]
    plots: dict[str, Any]
    notes: list[str]
    verdict: str
    converged: bool
    convergence: list[tuple[str, float, float, float]]
    suspicious: list[tuple[int, float]] | None
    hyperparameters: list[tuple[str, str, str]]
    calibration: list[tuple[str, str]]
    comparison: list[Sequence[str]]
    settings: list[tuple[str, str]]
    rows: Rows = field(repr=False)


def collect(
    classifier: GraphClassifier,
    rows: Rows,
    *,
    title: str,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    comparison: Sequence[Sequence[str]] = (),
    seed: int = 0,
) -> Content:
    """Compute what the report shows.

    Args:
        classifier: a fitted one.
        rows: what its rows are called and look like.
        title: of the page.
        settings: facts about the run that the classifier does not know.
        notes: what was warned of in the fit.
        comparison: a table of other models, its head first.
        seed: for which rows are drawn where there are too many.
    """
    posterior, labels = classifier.posterior_, classifier.labels_
    statistics, probability = posterior.labels(), classifier.label_distributions_[:, 1]
    unlabeled = np.setdiff1d(np.arange(posterior.n_nodes), labels.nodes)
    ranked = unlabeled[np.argsort(np.abs(probability[unlabeled] - 0.5), kind="stable")]
    least, most = ranked[:N_LISTED], ranked[::-1][:N_LISTED]
    shown = _shown(ranked, labels.nodes, np.random.default_rng(seed))
    known = unlabeled if rows.truth is None else unlabeled[rows.truth[unlabeled] != 0]
    judged = None
    if rows.truth is not None and known.size:
        columns = np.column_stack([1 - probability[known], probability[known]])
        judged = calibration.summary(columns, (rows.truth[known] > 0).astype(int))
    diagnosis = posterior.diagnostics()
    suspicious = _suspicious(posterior)
    classes = (str(classifier.classes_[0]), str(classifier.classes_[1]))
    confidence = np.maximum(probability, 1 - probability)
    return Content(
        title=title,
        classes=classes,
        sentences=_sentences(classifier, probability, unlabeled, judged, suspicious, diagnosis.converged),
        tiles=_tiles(confidence, labels.nodes, unlabeled, statistics, judged),
        least_certain=least,
        most_certain=most,
        nodes=_nodes(shown, statistics, probability, classifier, rows),
        plots={
            "classes": classes,
            "embedding": _embedding(classifier, shown),
            "confidence": _confidence(confidence[unlabeled], probability[unlabeled]),
            "marginals": _marginals(posterior, [*ranked[:N_MARGINALS], *ranked[::-1][:N_MARGINALS]], statistics),
            "traces": _traces(posterior, diagnosis.nodes[np.argsort(-diagnosis.r_hat)[:2]]),
            "reliability": None if judged is None else _reliability(judged.equal_width),
            "spectrum": _round(classifier.spectrum_.values[:500]),
            "pictures": _pictures(rows, np.concatenate([least, most, np.setdiff1d(shown, [*least, *most])])),
            "columns": list(rows.columns[:MAX_CELLS]),
        },
        notes=list(notes),
        verdict=verdict(diagnosis),
        converged=diagnosis.converged,
        convergence=[
            (rows.names[node], float(r_hat), float(bulk), float(tail))
            for node, r_hat, bulk, tail in zip(
                diagnosis.nodes, diagnosis.r_hat, diagnosis.ess_bulk, diagnosis.ess_tail, strict=True
            )
        ],
        suspicious=suspicious,
        hyperparameters=_hyperparameters(classifier),
        calibration=[] if judged is None else _measures(judged),
        comparison=list(comparison),
        settings=_settings(classifier, settings),
        rows=rows,
    )


def _shown(ranked: Nodes, labeled: Nodes, rng: np.random.Generator) -> Nodes:
    """The nodes that are drawn: all, or the labeled, the least and most certain, and some others."""
    if ranked.size + labeled.size <= MAX_POINTS:
        return np.sort(np.concatenate([ranked, labeled]))
    extremes = np.concatenate([ranked[:500], ranked[-N_LISTED:]])
    first = np.concatenate([labeled[: MAX_POINTS // 2], extremes])
    others = np.setdiff1d(ranked, first)
    return np.sort(np.concatenate([first, rng.choice(others, MAX_POINTS - len(first), replace=False)]))


def _sentences(
    classifier: GraphClassifier,
    probability: Array,
    unlabeled: Nodes,
    judged: calibration.Summary | None,
    suspicious: list[tuple[int, float]] | None,
    converged: bool,
) -> list[str]:
    labels = classifier.labels_
    first, second = (f"“{name}”" for name in classifier.classes_)  # the page sets apart what is quoted so
    n_rows, n_labeled = classifier.graph_.n_nodes, len(labels.nodes)
    given = [int(np.sum(labels.y == sign)) for sign in (-1, 1)]
    n_second = int(np.sum(probability[unlabeled] > 0.5))
    confidence = np.maximum(probability, 1 - probability)[unlabeled]
    sure, unsure = int(np.sum(confidence >= SURE)), int(np.sum(confidence < UNSURE))
    told = [
        f"Of {n_rows:,} rows, {n_labeled:,} had a class: {given[0]:,} had {first} and {given[1]:,} had {second}. "
        "The question was the class of the others, and how sure one can be of each."
    ]
    if len(unlabeled):
        look = f" and deserve{'s' if unsure == 1 else ''} a look" if unsure else ""
        told.append(
            f"The answer: {_count(len(unlabeled) - n_second, 'is', 'are')} more likely {first} and "
            f"{_count(n_second, 'is', 'are')} more likely {second}. {_count(sure, 'has', 'have').capitalize()} a "
            f"probability of {SURE:.0%} or more; {_count(unsure, 'has', 'have')} less than {UNSURE:.0%}{look}."
        )
    if judged is not None:
        told.append(
            f"Where the truth is known, {judged.accuracy:.1%} of {judged.n_nodes:,} rows are classified right. "
            f"Leave the least sure tenth to a person, and {judged.risk_coverage.at(0.9):.1%} of the rest are."
        )
    if suspicious:
        one = "s" if len(suspicious) == 1 else ""
        told.append(f"{len(suspicious):,} of the given labels contradict{one} the others: see below.")
    if not converged:
        told.append("The sampling has not converged: read every number on this page as provisional.")
    return told


def _count(n: int, one: str, more: str) -> str:
    """How many, and the verb that goes with it: "none has", "1 has", "2 have"."""
    return f"{n:,} {more}" if n > 1 else f"{n or 'none'} {one}"


def _tiles(
    confidence: Array,
    labeled: Nodes,
    unlabeled: Nodes,
    statistics: LabelStatistics,
    judged: calibration.Summary | None,
) -> list[tuple[str, str]]:
    share = np.mean(confidence[unlabeled] >= SURE) if len(unlabeled) else 1.0
    tiles = [
        (f"{len(confidence):,}", "rows"),
        (f"{len(labeled):,}", "labeled"),
        (f"{share:.0%}", f"of the others with probability {SURE:.0%} or more"),
        (f"{statistics.variance.mean():.3f}", "mean label variance; 1 before any label"),
    ]
    if judged is not None:
        tiles.append((f"{judged.accuracy:.1%}", "right, where the truth is known"))
    return tiles


def _nodes(
    shown: Nodes, statistics: LabelStatistics, probability: Array, classifier: GraphClassifier, rows: Rows
) -> list[dict[str, Any]]:
    """One entry for each node that is drawn or listed."""
    given = np.zeros(classifier.graph_.n_nodes, dtype=int)
    given[classifier.labels_.nodes] = classifier.labels_.y
    truth = np.zeros_like(given) if rows.truth is None else rows.truth
    return [
        {
            "node": int(node),
            "name": rows.names[node],
            "p": round(float(probability[node]), 4),
            "class": int(probability[node] > 0.5),  # which p, rounded, may not tell
            "mean": round(float(statistics.mean[node]), 4),
            "variance": round(float(statistics.variance[node]), 4),
            "error": round(float(statistics.error[node]), 5),
            "label": int(given[node]),
            "truth": int(truth[node]),
            "cells": list(rows.cells[node][:MAX_CELLS]) if rows.cells else [],
        }
        for node in shown
    ]


def _embedding(classifier: GraphClassifier, shown: Nodes) -> dict[str, Any]:
    """Coordinates in the first eigenvectors that tell nodes apart: those after the constant ones."""
    modes = classifier.spectrum_
    first = min(modes.n_components, max(modes.n_modes - 2, 0))
    chosen = list(range(first, min(first + N_AXES, modes.n_modes)))
    return {
        "names": [f"q{j}" for j in chosen],
        "coordinates": [_round(modes.vectors[shown, j]) for j in chosen],
    }


def _confidence(confidence: Array, probability: Array) -> dict[str, Any]:
    edges = np.linspace(0.5, 1, 21)
    counts = [
        np.histogram(confidence[mine], edges)[0].tolist() for mine in (probability <= 0.5, probability > 0.5)
    ]
    return {"edges": _round(edges), "counts": counts}


def _marginals(posterior: Posterior, nodes: Sequence[Any], statistics: LabelStatistics) -> list[dict[str, Any]]:
    """Histograms of u, or v, at some nodes, on one scale."""
    if not nodes:
        return []
    chosen = np.array(nodes, dtype=np.int64)
    draws = posterior.latent(chosen).reshape(-1, len(chosen))
    reach = float(np.quantile(np.abs(draws), 0.999)) or 1.0
    edges = np.linspace(-reach, reach, 41)
    return [
        {
            "node": int(node),
            "mean": round(float(statistics.mean[node]), 3),
            "edges": _round(edges),
            "counts": np.histogram(draws[:, k], edges)[0].tolist(),
        }
        for k, node in enumerate(chosen)
    ]


def _traces(posterior: Posterior, nodes: Nodes) -> list[dict[str, Any]]:
    """u at the nodes of worst convergence, along every chain."""
    step = max(1, posterior.n_draws // N_TRACE)
    draws = posterior.latent(nodes)[:, ::step]
    return [
        {"node": int(node), "step": step, "chains": [_round(chain) for chain in draws[..., k]]}
        for k, node in enumerate(nodes)
    ]


def _suspicious(posterior: Posterior) -> list[tuple[int, float]] | None:
    """Labels that the other labels speak against, and their probability given those; None where unknown.

    ``P(y_j | all other labels)`` by expectation propagation, which Ginzburg-Landau does not allow.
    """
    model = posterior.model
    if isinstance(model, GinzburgLandau) or len(model.nodes) > MAX_CHECKED_LABELS:
        return None
    factor = posterior.whitening.matrix(model.nodes)
    left_out = np.exp(propagate(factor, Sites.of(model)).log_predictive)
    order = np.argsort(left_out)
    return [(int(model.nodes[j]), float(left_out[j])) for j in order if left_out[j] < SUSPICIOUS]


def _reliability(found: calibration.Reliability) -> dict[str, Any]:
    kept = found.counts > 0
    return {
        "left": _round(found.edges[:-1][kept]),
        "right": _round(found.edges[1:][kept]),
        "confidence": _round(found.confidence[kept]),
        "frequency": _round(found.frequency[kept]),
        "counts": found.counts[kept].tolist(),
    }


def _measures(found: calibration.Summary) -> list[tuple[str, str]]:
    return [
        ("rows with known truth, not labeled", f"{found.n_nodes:,}"),
        ("share right", f"{found.accuracy:.3f}"),
        ("log-loss", f"{found.log_loss:.3f}"),
        ("Brier score", f"{found.brier:.3f}"),
        ("expected calibration error", f"{found.equal_width.ece:.3f}"),
        ("a wrong answer is less sure than a right one with probability", f"{found.error_detection_auroc:.3f}"),
    ]


def _hyperparameters(classifier: GraphClassifier) -> list[tuple[str, str, str]]:
    """Name, value, and where it comes from."""
    spread = classifier.hyperparameter_spread_

    def source(name: str) -> str:
        if name not in spread:
            return "set, not learned"
        if spread[name] < VAGUE:
            return f"learned, to a factor of {spread[name]:.2g}"
        return f"learned, but hardly known (to a factor of {float(f'{spread[name]:.2g}'):,.0f})"

    return [(name, f"{value:.4g}", source(name)) for name, value in classifier.hyperparameters_.items()]


def _settings(classifier: GraphClassifier, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    posterior, modes = classifier.posterior_, classifier.spectrum_
    left_out = {"verbose", *without_effect(classifier)}
    facts = {
        **{name: value for name, value in classifier.get_params().items() if name not in left_out},
        "prior of u": posterior.whitening.prior.name,
        "eigenpairs": f"{modes.n_modes} by {modes.method}",
        "connected components": modes.n_components,
        "sampler": posterior.settings.get("sampler"),
        "chains x draws": f"{posterior.n_chains} x {posterior.n_draws}",
        **settings,
    }
    return [(name, "not set" if value is None else str(value)) for name, value in facts.items()]


def _pictures(rows: Rows, shown: Nodes) -> dict[str, Any] | None:
    """Gray values of the nodes shown, as one string; only of the first, where a page cannot carry all."""
    if rows.pictures is None:
        return None
    height, width = rows.pictures.shape[1:]
    fit = shown[: max(1, MAX_PICTURE_BYTES // (height * width))]
    raw = base64.b64encode(np.ascontiguousarray(rows.pictures[fit]).tobytes()).decode("ascii")
    return {"height": int(height), "width": int(width), "nodes": fit.tolist(), "gray": raw}


def _round(values: NDArray[Any]) -> list[float]:
    """Four significant digits: enough for a plot."""
    return [float(f"{value:.4g}") for value in np.asarray(values, dtype=float)]
