"""A graph and labels in; for each class the field of sources at its labels and sinks at others' out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq.baselines.class_labels import one_hot
from graphuq.baselines.linear_system import solve_positive
from graphuq.baselines.volumes import balance, check_priors
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, MatrixLike
from graphuq.laplacian import Laplacian, unnormalized


def poisson(
    A: Graph | MatrixLike,
    nodes: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    class_priors: ArrayLike | None = None,
) -> Array:
    """Poisson learning of Calder, Cook, Thorpe and Slepcev (2020): scores, shape (n_nodes, K).

    With ``Y_jk = 1`` where the labeled node j has class k, and 0 elsewhere, and the mean ``Ybar`` of these rows:

        ``(D - A) u = sum_j (Y_j - Ybar) delta_j`` and ``sum_i d_i u_i = 0``.

    Here d_i leaves self-weights out. Labels that are few do not become lonely spikes, as those of `harmonic` do.

    Args:
        A: a connected graph, or a matrix of weights. Sparse systems are solved by conjugate gradients.
        nodes: the labeled nodes, shape (n_labeled,), each once.
        y: their classes, 0 to K - 1; or -1 and +1, which are classes 0 and 1 of two. Shape (n_labeled,).
        n_classes: K, if some classes have no label.
        class_priors: share of the nodes in each class, (K,): constants are added to the columns for which the
            largest scores have these shares.
    """
    graph = as_graph(A)
    nodes, Y = one_hot(nodes, y, n_nodes=graph.n_nodes, n_classes=n_classes)
    shares = None if class_priors is None else check_priors(class_priors, Y)
    u = potential(unnormalized(graph), sources(nodes, Y, n_nodes=graph.n_nodes))
    return u if shares is None else u + balance(u, shares)


def sources(nodes: NDArray[np.intp], Y: Array, *, n_nodes: int) -> Array:
    """``sum_j (Y_j - Ybar) delta_j``, whose columns have sum zero; shape (n_nodes, K)."""
    b = np.zeros((n_nodes, Y.shape[1]))
    b[nodes] = Y - Y.mean(axis=0)
    return b


def potential(L: Laplacian, b: Array) -> Array:
    """The solution of ``L u = b`` for L = D - A with ``sum_i d_i u_i = 0``; shape (n_nodes, K)."""
    if L.n_components > 1:
        raise ValueError(
            f"The graph falls into {L.n_components} components, and sources do not balance in each. "
            "Join more neighbors, or use harmonic, which needs a label in each."
        )
    d = L.matrix.diagonal()
    if isinstance(L.matrix, np.ndarray):
        # the added part vanishes at the solution, as 1^T L = 0 = 1^T b, and makes it the only one
        return solve_positive(L.matrix + np.outer(d, d / d.sum()), b)
    # conjugate gradients stay among the fields that b reaches, where L is positive
    u = solve_positive(L.matrix, b)
    return u - d @ u / d.sum()
