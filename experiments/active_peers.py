"""Rows, a few labels and a way to ask in; after every answer the probabilities of all rows out: ours and other tools.

Every tool is a generator: it yields probabilities and the next row to ask, and is sent its class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression

from experiments import graphlearning_peers
from experiments.table_peers import connected_graph, standardized
from graphuq import GraphClassifier, uncertainty
from graphuq.queries import LEARN_AGAIN

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Session = Generator[tuple[Array, int], int, None]


@dataclass(frozen=True, eq=False)
class Pool:
    """What every tool starts from.

    Attributes:
        X: features of every row.
        nodes: the rows labeled at the start, each class once.
        y: their classes, 0 to K - 1.
        open_rows: the rows that may be asked.
        seed: of random choices.
    """

    X: Array
    nodes: Rows
    y: Rows
    open_rows: Rows
    seed: int


def ours(pool: Pool, strategy: str) -> Session:
    """`GraphClassifier` as it comes; hyper-parameters are learned anew as labels grow, as on the labelling page."""
    given = np.full(len(pool.X), -1)
    given[pool.nodes] = pool.y
    classifier = GraphClassifier(random_state=pool.seed).fit(pool.X, given)
    learned_from, left = len(pool.nodes), pool.open_rows
    while True:
        row = int(classifier.next_queries(1, strategy=strategy, candidates=left)[0])
        label = yield classifier.label_distributions_, row
        left = left[left != row]
        classifier.partial_fit_labels([row], [label])
        if len(classifier.labels_.nodes) >= LEARN_AGAIN * learned_from:
            classifier.relearn()
            learned_from = len(classifier.labels_.nodes)


def logistic(pool: Pool) -> Session:
    """scikit-learn's LogisticRegression, asking where its margin is smallest."""
    return _by_margin(pool, lambda X, y, _: LogisticRegression(max_iter=300).fit(X, y))


def gaussian_process(pool: Pool) -> Session:
    """scikit-learn's GaussianProcessClassifier, asking where it is least sure: what modAL's uncertainty sampling does.

    The kernel, one for all classes, is chosen by evidence anew as labels double: learned one against the rest from a
    label of each it would be flat.
    """
    kernel, learned_from = None, 0

    def make(kernel: Any, seed: int) -> Any:
        return GaussianProcessClassifier(kernel, optimizer=None, random_state=seed)

    def fit(X: Array, y: Rows, seed: int) -> Any:
        nonlocal kernel, learned_from
        if len(y) >= 2 * learned_from:
            learned_from = len(y)
            size = np.sqrt(X.shape[1])
            choices = [
                ConstantKernel(c) * RBF(scale * size) for c in (1.0, 10.0, 100.0) for scale in (0.2, 0.5, 1.0, 2.0)
            ]
            kernel = max(choices, key=lambda each: make(each, seed).fit(X, y).log_marginal_likelihood_value_)
        return make(kernel, seed).fit(X, y)

    return _by_margin(pool, fit)


def _by_margin(pool: Pool, fit: Callable[[Array, Rows, int], Any]) -> Session:
    X, nodes, y, left = standardized(pool.X), pool.nodes, pool.y, pool.open_rows
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few iterations, or a kernel at its bounds
            p = np.asarray(fit(X[nodes], y, pool.seed).predict_proba(X), dtype=np.float64)
        row = int(left[np.argmin(uncertainty.margin(p[left]))])
        label = yield p, row
        left, nodes, y = left[left != row], np.append(nodes, row), np.append(y, label)


def graphlearning(pool: Pool, acquisition: str) -> Session:
    """The package GraphLearning, on a connected graph."""
    graph = connected_graph(standardized(pool.X))
    return graphlearning_peers.session(graph, pool.nodes, pool.y, pool.open_rows, acquisition)


def sessions(strategies: tuple[str, ...]) -> dict[str, Callable[[Pool], Session]]:
    """Ours by the strategies asked for, and every other tool that is installed, by name."""
    found: dict[str, Callable[[Pool], Session]] = {
        f"graphuq, {name}": lambda pool, name=name: ours(pool, name)
        for name in strategies  # type: ignore[misc]
    }
    found |= {"LogisticRegression, margin": logistic, "Gaussian process, margin": gaussian_process}
    if graphlearning_peers.installed():
        for name, function in graphlearning_peers.ACQUISITIONS.items():
            found[name] = lambda pool, function=function: graphlearning(pool, function)  # type: ignore[misc]
    return found
