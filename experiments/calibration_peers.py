"""A graph, its features and some labels in; scores of other tools at every node, and probabilities from them, out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import KFold
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

from graphuq.graph import Graph

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]
# Labeled nodes and labels in; a score of every node out, positive for +1.
Score = Callable[[Nodes, Array], Array]

N_FOLDS = 5
# Bounds of a temperature, for scores of mean square 1: held-out labels that are all right would drive it to
# certainty, all wrong to a coin toss.
TEMPERATURES = (0.03, 30.0)
SKLEARN = {"LabelSpreading": LabelSpreading, "LabelPropagation": LabelPropagation}
REWEIGHTINGS = {"Laplace": "none", "Laplace, WNLL": "wnll", "Laplace, Poisson weights": "poisson"}


def scorers(graph: Graph, *, graphlearning: bool) -> dict[str, Score]:
    """Every peer that works on the graph, by name; all see the same weights."""
    found: dict[str, Score] = {name: _sklearn(graph, make) for name, make in SKLEARN.items()}
    if graphlearning:
        try:
            from graphlearning import ssl
        except ImportError as error:
            raise ImportError("GraphLearning is one of the peers: pip install 'graphuq[peers]'.") from error
        W = csr_matrix(graph.weights)
        for name, reweighting in REWEIGHTINGS.items():
            found[name] = _graphlearning(ssl.laplace(W, reweighting=reweighting))
        found["Poisson"] = _graphlearning(ssl.poisson(W))
    return found


def _sklearn(graph: Graph, make: Any) -> Score:
    """The distribution of labels, as a score from -1 to 1; a node that no label reaches has 0."""
    nothing = np.zeros((graph.n_nodes, 1))

    def score(nodes: Nodes, labels: Array) -> Array:
        y = np.full(graph.n_nodes, -1)
        y[nodes] = (labels > 0).astype(int)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of too few iterations: they are its own
            fitted = make(kernel=lambda *_: csr_matrix(graph.weights)).fit(nothing, y)
        return np.nan_to_num(fitted.label_distributions_ @ [-1.0, 1.0])

    return score


def _graphlearning(model: Any) -> Score:
    def score(nodes: Nodes, labels: Array) -> Array:
        return np.asarray(model.fit(nodes, (labels > 0).astype(int)) @ [-1.0, 1.0])

    return score


def gaussian_process(X: Array, nodes: Nodes, labels: Array) -> Array:
    """P(+1) at every row by scikit-learn, with a scaled Gaussian kernel learned from the labels."""
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.var(axis=0).sum()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a kernel at its bounds
        return GaussianProcessClassifier(kernel).fit(X[nodes], labels).predict_proba(X)[:, 1]


def tempered(score: Score, nodes: Nodes, labels: Array, whole: Array, *, seed: int) -> Array:
    """P(+1) = 1 / (1 + exp(-t s)), t by least log-loss of held-out labels in five folds."""
    scale = 1 / max(float(np.sqrt(np.mean(whole**2))), 1e-300)
    held, y = [], []
    for rest, fold in KFold(min(N_FOLDS, len(nodes)), shuffle=True, random_state=seed).split(nodes):
        if np.unique(labels[rest]).size == 2:
            held.append(score(nodes[rest], labels[rest])[nodes[fold]])
            y.append(labels[fold])
    if not held:
        return expit(scale * whole)
    margin = scale * np.concatenate(held) * np.concatenate(y)
    best = minimize_scalar(
        lambda log_t: np.logaddexp(0, -np.exp(log_t) * margin).mean(),
        bounds=np.log(TEMPERATURES),
        method="bounded",
    )
    return expit(np.exp(best.x) * scale * whole)
