"""A graph and labels in; for each class the harmonic function that is 1 at its labels and 0 at others out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from graphuq._warn import warn
from graphuq.baselines.class_labels import read_problem
from graphuq.baselines.linear_system import BARELY_JOINED, solve_positive
from graphuq.baselines.volumes import balance
from graphuq.graph import Graph
from graphuq.graph.features import Array, MatrixLike
from graphuq.laplacian import unnormalized

_ROUNDING = 1e-6  # by which the scores of a node may fail to add up to 1


def harmonic(
    A: Graph | MatrixLike,
    nodes: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    class_shares: ArrayLike | None = None,
) -> Array:
    """Harmonic functions, or Laplace learning, of Zhu, Ghahramani and Lafferty (2003): scores, (n_nodes, K).

    With ``Y_jk = 1`` where the labeled node j has class k, and 0 elsewhere: ``u = Y`` at the labeled nodes and
    ``(D - A) u = 0`` at all others, so that u is the weighted mean over its neighbors. The scores of a node lie between
    0 and 1 and sum to 1.

    Args:
        A: a graph, or a weight matrix. Sparse systems are solved by conjugate gradients.
        nodes: the labeled nodes, shape (n_labeled,), each once.
        y: their classes, 0 to K - 1, or -1 and +1 for classes 0 and 1 of two; shape (n_labeled,).
        n_classes: K, if some classes have no label.
        class_shares: share of the nodes in each class, (K,): constants are added to the columns so that the
            predicted classes have these shares.
    """
    graph, nodes, Y, shares = read_problem(A, nodes, y, n_classes, class_shares)
    L = unnormalized(graph)
    n_missed = L.n_components - np.unique(L.components[nodes]).size
    if n_missed:
        raise ValueError(
            f"{n_missed} of {L.n_components} components of the graph have no label, so u is not "
            "determined there. Label a node in each, or join more neighbors."
        )
    u = np.zeros((graph.n_nodes, Y.shape[1]))
    u[nodes] = Y
    free = np.setdiff1d(np.arange(graph.n_nodes), nodes)
    if free.size:
        u[free] = solve_positive(L.matrix[free][:, free], -(L.matrix @ u)[free])
        if np.abs(u.sum(axis=1) - 1).max() > _ROUNDING:
            warn(f"The scores of some nodes did not converge to a sum of 1: {BARELY_JOINED}", RuntimeWarning)
    return u if shares is None else u + balance(u, shares)
