"""A task in; the class probabilities that other tools give to every row out.

Tools that work on features see all columns with mean 0 and deviation 1. Tools that work on a graph see one of ten
neighbors, which suits them better than the five of `GraphClassifier` on the data that settings were chosen on; where
it falls apart it is joined, which some of them need. Settings are the tools' own but where noted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, csr_matrix
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.model_selection import StratifiedKFold
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

from experiments import graphlearning_peers
from experiments.class_peers import Peer, clipped, tempered
from graphuq import baselines
from graphuq.calibration import log_loss
from graphuq.graph import Graph, knn
from graphuq.laplacian import connected_components

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

SHARES, BARE = "class shares", "class shares, bare"
N_FOLDS = 5
# Sigmoids are fitted to labels held out in so many folds, where each class has as many labels.
CALIBRATION_FOLDS = 3
STRENGTHS = tuple(10.0**k for k in range(-4, 3))
# An edge that joins what would fall apart weighs as much as this quantile of the edges.
JOINT = 0.5
N_NEIGHBORS = 10


@dataclass(frozen=True)
class Task:
    """Rows, some of them with a class.

    Attributes:
        X: features of every row, columns with mean 0 and deviation 1, shape (n, d).
        graph: connected, of the same rows.
        nodes: the labeled rows, shape (n_labeled,).
        y: their classes as given, 0 to K - 1, each there at least once.
        seed: of folds and forests.
        shares: the true share of each class, which is told to some threshold dynamics alone.
    """

    X: Array
    graph: Graph
    nodes: Nodes
    y: Nodes
    seed: int
    shares: Array

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    @property
    def fewest(self) -> int:
        """Labels of the class that has the fewest."""
        return int(np.bincount(self.y).min())


Tool = Callable[[Task], Array]


def probabilities(task: Task, *, graphlearning: bool = False) -> dict[str, Array]:
    """Of every tool, shape (n, K); those of the package GraphLearning where asked for."""
    found = {name: tool(task) for name, tool in TOOLS.items()}
    theirs = graphlearning_peers.peers(task.graph, task.shares) if graphlearning else {}
    for name, peer in (graph_peers(task) | theirs).items():
        scores = peer.score(task.nodes, task.y)
        found[name] = peer.read(scores) if peer.read is not None else softmax(unit_scale(scores), axis=1)
        if peer.has_scores:
            # With one label of a class there is nothing to hold out: the answer is that without a temperature.
            made = tempered(peer, task.nodes, task.y, scores, seed=task.seed)
            found[f"{name} + T"] = found[name] if made is None else made
    return found


def standardized(X: Array) -> Array:
    """Columns with mean 0 and deviation 1, those that do not vary left out."""
    varies = X.std(axis=0) > 1e-9
    return np.asarray((X[:, varies] - X[:, varies].mean(axis=0)) / X[:, varies].std(axis=0))


def connected_graph(X: Array) -> Graph:
    """Of nearest neighbors, with an edge from each component to the nearest row outside it."""
    graph = knn(X, n_neighbors=N_NEIGHBORS)
    weights = csr_array(graph.weights)
    n_components, component = connected_components(graph)
    weight = np.quantile(weights.data, JOINT)
    while n_components > 1:
        pairs = []
        for k in np.argsort(np.bincount(component))[:-1]:  # the largest is reached from the others
            inside, outside = np.flatnonzero(component == k), np.flatnonzero(component != k)
            nearest, distance = pairwise_distances_argmin_min(X[inside], X[outside])
            pairs.append((inside[distance.argmin()], outside[nearest[distance.argmin()]]))
        i, j = np.array(pairs).T
        joints = coo_array((np.full(len(i), weight), (i, j)), shape=weights.shape)
        weights = csr_array(weights.maximum(joints.tocsr()).maximum(joints.T.tocsr()))
        n_components, component = connected_components(Graph(weights))
    return Graph(weights)


def unit_scale(scores: Array) -> Array:
    """Scores that have none of their own, scaled so that their differences have mean square 1."""
    centered = scores - scores.mean(axis=1, keepdims=True)
    return np.asarray(scores / max(float(np.sqrt(np.mean(centered**2))), 1e-300))


def graph_peers(task: Task) -> dict[str, Peer]:
    """The tools that work on the graph."""
    graph, n_classes = task.graph, task.n_classes
    return {
        "LabelSpreading": Peer(lambda nodes, y: _spread(LabelSpreading, graph, nodes, y), clipped),
        "LabelPropagation": Peer(lambda nodes, y: _spread(LabelPropagation, graph, nodes, y), clipped, False),
        "harmonic": Peer(lambda nodes, y: baselines.harmonic(graph, nodes, y, n_classes=n_classes), clipped),
        "Poisson": Peer(lambda nodes, y: baselines.poisson(graph, nodes, y, n_classes=n_classes)),
    }


def _spread(make: Any, graph: Graph, nodes: Nodes, y: Nodes) -> Array:
    given = np.full(graph.n_nodes, -1)
    given[nodes] = y
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of too few iterations: they are its own
        fitted = make(kernel=lambda *_: csr_matrix(graph.weights)).fit(np.zeros((len(given), 1)), given)
    return np.nan_to_num(fitted.label_distributions_)


def class_shares(task: Task) -> Array:
    """The share of each class among the labels and one more label of each, the same for every row."""
    counts = np.bincount(task.y) + 1.0
    return np.tile(counts / counts.sum(), (len(task.X), 1))


def bare_class_shares(task: Task) -> Array:
    """The share of each class among the labels, the same for every row."""
    counts = np.bincount(task.y)
    return np.tile(counts / counts.sum(), (len(task.X), 1))


def logistic(task: Task) -> Array:
    """LogisticRegression with its own strength, C = 1."""
    return _answer(_logistic(1.0), task)


def logistic_cross_validated(task: Task) -> Array:
    """The strength by the log-loss of held-out labels, in up to five folds; C = 1 with one label of a class."""
    n_folds = min(N_FOLDS, task.fewest)
    if n_folds < 2:
        return logistic(task)
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=task.seed).split(task.nodes, task.y))
    X, y = task.X[task.nodes], task.y
    truth = np.concatenate([y[fold] for _, fold in folds])

    def loss(C: float) -> float:
        held = [_logistic(C).fit(X[rest], y[rest]).predict_proba(X[fold]) for rest, fold in folds]
        return log_loss(np.concatenate(held), truth)

    return _answer(_logistic(min(STRENGTHS, key=loss)), task)


def _logistic(C: float) -> Any:
    return LogisticRegression(C=C, max_iter=300)


def gaussian_process(task: Task) -> Array:
    """GaussianProcessClassifier with a scaled Gaussian kernel, learned; of many classes one against the rest."""
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(task.X.shape[1]), (1e-2, 1e4))
    return _answer(GaussianProcessClassifier(kernel, random_state=task.seed), task)


def forest(task: Task) -> Any:
    """RandomForestClassifier; two rows a leaf at least, or many of its shares would be 0 and 1."""
    return RandomForestClassifier(100, min_samples_leaf=2, random_state=task.seed, n_jobs=1)


def boosting(task: Task) -> Any:
    """HistGradientBoostingClassifier; five rows a leaf at least, since with its own 20 it could not split 39 rows."""
    return HistGradientBoostingClassifier(min_samples_leaf=5, random_state=task.seed)


def _calibrated(make: Callable[[Task], Any]) -> Tool:
    """With sigmoids fitted to labels held out in three folds; as it is where a class has fewer labels."""

    def answer(task: Task) -> Array:
        if task.fewest < CALIBRATION_FOLDS:
            return _answer(make(task), task)
        folds = StratifiedKFold(CALIBRATION_FOLDS, shuffle=True, random_state=task.seed)
        return _answer(CalibratedClassifierCV(make(task), method="sigmoid", cv=folds), task)

    return answer


def _answer(model: Any, task: Task) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few iterations, or a kernel at its bounds
        fitted = model.fit(task.X[task.nodes], task.y)
        return np.asarray(fitted.predict_proba(task.X), dtype=np.float64)


TOOLS: dict[str, Tool] = {
    SHARES: class_shares,
    BARE: bare_class_shares,
    "LogisticRegression": logistic,
    "LogisticRegression, CV": logistic_cross_validated,
    "Gaussian process": gaussian_process,
    "RandomForest": lambda task: _answer(forest(task), task),
    "RandomForest, calibrated": _calibrated(forest),
    "HistGradientBoosting": lambda task: _answer(boosting(task), task),
    "HistGradientBoosting, calibrated": _calibrated(boosting),
}
