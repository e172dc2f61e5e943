"""A graph, its features and labels of many classes in; scores of other tools at every row, and probabilities, out.

GraphLearning's are in graphlearning_peers.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading

from graphuq import baselines
from graphuq.graph import Graph

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

N_FOLDS = 5
# Bounds of the factor of scores whose differences have mean square 1: held-out labels that are all right would drive
# it to certainty, all wrong to a guess.
FACTORS = (0.03, 30.0)


@dataclass(frozen=True)
class Peer:
    """A tool that others use.

    Attributes:
        score: labeled nodes and their classes in, a score for each class at every node out, shape (n_nodes, K).
        read: scores to the probabilities that the tool itself makes of them; None where it makes none.
        has_scores: False where nothing more is to be made of the scores.
        n_folds: at most so many, in which labels are held out for a temperature.
    """

    score: Callable[[Nodes, Nodes], Array]
    read: Callable[[Array], Array] | None = None
    has_scores: bool = True
    n_folds: int = N_FOLDS


def peers(graph: Graph, X: Any, shares: Array) -> dict[str, Peer]:
    """Every tool, by name; all that work on a graph see the same weights.

    Args:
        graph: connected.
        X: the features, for what works on them.
        shares: the true share of each class, which is told to threshold dynamics alone.
    """
    n_classes = len(shares)
    return {
        "harmonic": Peer(lambda nodes, y: baselines.harmonic(graph, nodes, y, n_classes=n_classes), clipped),
        "Poisson": Peer(lambda nodes, y: baselines.poisson(graph, nodes, y, n_classes=n_classes)),
        "Poisson-MBO, true shares": Peer(lambda nodes, y: baselines.mbo(graph, nodes, y, class_shares=shares)),
        "LabelSpreading": Peer(lambda nodes, y: _label_spreading(graph, nodes, y), clipped),
        "LogisticRegression": Peer(
            lambda nodes, y: _logistic(X, nodes, y), lambda scores: softmax(scores, axis=1)
        ),
    }


def clipped(scores: Array) -> Array:
    """Rows of probabilities; where a row has none, all classes are alike."""
    positive = np.maximum(np.nan_to_num(scores), 0)
    total = positive.sum(axis=1, keepdims=True)
    even = np.full_like(positive, 1 / positive.shape[1])
    return np.where(total > 0, positive / np.where(total > 0, total, 1), even)


def _label_spreading(graph: Graph, nodes: Nodes, y: Nodes) -> Array:
    given = np.full(graph.n_nodes, -1)
    given[nodes] = y
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of too few iterations: they are its own
        fitted = LabelSpreading(kernel=lambda *_: csr_matrix(graph.weights)).fit(np.zeros((len(given), 1)), given)
    return np.nan_to_num(fitted.label_distributions_)


def _logistic(X: Any, nodes: Nodes, y: Nodes) -> Array:
    scaled = StandardScaler().fit(X)  # on all rows: they are there, and more than the labeled ones
    fitted = make_pipeline(scaled, LogisticRegression(max_iter=1000)).fit(X[nodes], y)
    return np.asarray(fitted.predict_log_proba(X))


def tempered(peer: Peer, nodes: Nodes, y: Nodes, whole: Array, *, seed: int) -> Array | None:
    """``softmax(t s)``, t by the least log-loss of held-out labels in up to `n_folds`; None with one label a class."""
    n_folds = min(peer.n_folds, int(np.bincount(y).min()))
    if n_folds < 2 or not peer.has_scores:
        return None
    centered = whole - whole.mean(axis=1, keepdims=True)
    scale = 1 / max(float(np.sqrt(np.mean(centered**2))), 1e-300)
    held, truth = [], []
    for rest, fold in StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(nodes, y):
        held.append(peer.score(nodes[rest], y[rest])[nodes[fold]])
        truth.append(y[fold])
    scores, column = scale * np.concatenate(held), np.concatenate(truth)

    def loss(log_t: float) -> float:
        return float(-log_softmax(np.exp(log_t) * scores, axis=1)[np.arange(len(column)), column].mean())

    best = minimize_scalar(loss, bounds=np.log(FACTORS), method="bounded")
    return np.asarray(softmax(np.exp(best.x) * scale * whole, axis=1))
