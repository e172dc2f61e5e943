"""Labels on a graph in; what the package GraphLearning answers out: scores of classes, or rows to ask.

All that the experiments know of the package is here: pip install 'graphuq[peers]'. Where it is not installed, pages
say so in its rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from experiments.class_peers import Peer, clipped
from graphuq.graph import Graph

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

LAPLACE, POISSON, MBO = (f"GraphLearning {name}" for name in ("Laplace", "Poisson", "Poisson-MBO"))
TOLD = f"{MBO}, true shares"
# Without and with a temperature.
LINES = (LAPLACE, f"{LAPLACE} + T", POISSON, f"{POISSON} + T", MBO, TOLD, f"{TOLD} + T")
NOT_INSTALLED = "not installed"
# What the package's acquisition functions are called here.
ACQUISITIONS = {
    "GraphLearning, margin": "unc_sampling",
    "GraphLearning, V-optimality": "var_opt",
    "GraphLearning, model change": "model_change_var_opt",
}
# Modes of the covariance that they are handed, as in the package's examples.
N_MODES = 50
# Threshold dynamics take a hundred times as long as the others: a temperature for those that know most alone, and from
# fewer folds.
FOLDS_OF_MBO = 2


def installed() -> bool:
    """Whether the package is there."""
    return find_spec("graphlearning") is not None


def missing(found: Iterable[str], lines: Iterable[str] = LINES) -> list[str]:
    """The lines that a record made without the package does not have."""
    found = set(found)
    return [] if found & set(lines) else list(lines)


def peers(graph: Graph, shares: Array) -> dict[str, Peer]:
    """Its methods for few labels on a connected graph.

    Poisson-MBO has to be told the share of each class: the true one, `shares`, or else that among the labels.
    """
    from graphlearning import ssl

    W = csr_matrix(graph.weights)

    def scores(model: Any, nodes: Nodes, y: Nodes) -> Array:
        return np.asarray(model.fit(nodes, y), dtype=np.float64)

    def threshold(nodes: Nodes, y: Nodes, told: Array | None = None) -> Array:
        known = np.bincount(y, minlength=len(shares)) / len(y) if told is None else told
        return scores(ssl.poisson_mbo(W, known), nodes, y)

    return {
        LAPLACE: Peer(lambda nodes, y: scores(ssl.laplace(W), nodes, y), clipped),
        POISSON: Peer(lambda nodes, y: scores(ssl.poisson(W), nodes, y)),
        MBO: Peer(threshold, has_scores=False),
        TOLD: Peer(lambda nodes, y: threshold(nodes, y, shares), n_folds=FOLDS_OF_MBO),
    }


def session(
    graph: Graph, nodes: Nodes, y: Nodes, open_rows: Nodes, acquisition: str
) -> Generator[tuple[Array, int], int, None]:
    """Laplace learning that asks by one of `ACQUISITIONS`: yields probabilities and a row, and is sent its class."""
    from graphlearning import active_learning, ssl

    model = ssl.laplace(csr_matrix(graph.weights))
    settings: dict[str, Any] = {}
    if acquisition != "unc_sampling":
        values, vectors = model.graph.eigen_decomp(normalization="normalized", k=N_MODES)
        settings = {"C": np.diag(1 / (values + 1e-11)), "V": vectors}
    asking = getattr(active_learning, acquisition)
    learner = active_learning.active_learner(model, asking, nodes, y, policy="max", **settings)
    left = open_rows
    while True:
        row = int(learner.select_queries(candidate_ind=left)[0])
        label = yield clipped(np.asarray(learner.u, dtype=np.float64)), row
        left = left[left != row]
        learner.update(np.array([row]), np.array([label]))
