"""A graph and labels in; for each class the potential of sources at its labels and sinks at other labels out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq.baselines.class_labels import read_problem
from graphuq.baselines.linear_system import solve_positive
from graphuq.baselines.volumes import balance
from graphuq.graph import Graph
from graphuq.graph.features import Array, MatrixLike
from graphuq.laplacian import Laplacian, unnormalized

# Rounds of threshold dynamics, and diffusion steps before each thresholding, as in GraphLearning.
N_ROUNDS, N_STEPS = 20, 40


def poisson(
    A: Graph | MatrixLike,
    nodes: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    class_shares: ArrayLike | None = None,
) -> Array:
    """Poisson learning of Calder, Cook, Thorpe and Slepcev (2020): scores, shape (n_nodes, K).

    With ``Y_jk = 1`` where the labeled node j has class k, and 0 elsewhere, and the mean ``Ybar`` of these rows:

        ``(D - A) u = sum_j (Y_j - Ybar) delta_j`` and ``sum_i d_i u_i = 0``.

    The degrees d_i exclude self-weights. Unlike `harmonic`, few labels do not degenerate to isolated spikes.

    Args:
        A: a connected graph, or a weight matrix. Sparse systems are solved by conjugate gradients.
        nodes, y, n_classes, class_shares: see `harmonic`.
    """
    graph, nodes, Y, shares = read_problem(A, nodes, y, n_classes, class_shares)
    u = potential(unnormalized(graph), sources(nodes, Y, n_nodes=graph.n_nodes))
    return u if shares is None else u + balance(u, shares)


def mbo(
    A: Graph | MatrixLike,
    nodes: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    class_shares: ArrayLike | None = None,
) -> Array:
    """Poisson MBO of Calder, Cook, Thorpe and Slepcev (2020), Algorithm 2: scores, shape (n_nodes, K).

    The scheme of Merriman, Bence and Osher, with the sources b of `poisson`. Starting from the classes k_i
    predicted by `poisson`, repeat

        ``u_i = e_{k_i}``, then ``u <- u - dt ((D - A) u - b)`` a few times, then
        ``k_i = argmax_k (u_ik + p_k)``,

    until no class changes. The shifts p enforce the requested class sizes, as column weights do in that paper;
    they are 0 without `class_shares`. The step ``dt = 1 / max_i d_i`` keeps the diffusion stable. The scores are
    the last ``u + p``.

    Args:
        A: a connected graph, or a weight matrix.
        nodes, y, n_classes, class_shares: see `harmonic`.
    """
    graph, nodes, Y, shares = read_problem(A, nodes, y, n_classes, class_shares)
    L, b = unnormalized(graph), sources(nodes, Y, n_nodes=graph.n_nodes)
    dt = 1 / L.matrix.diagonal().max()
    corners, p = np.eye(Y.shape[1]), np.zeros(Y.shape[1])
    classes = potential(L, b).argmax(axis=1)
    for _ in range(N_ROUNDS):
        u, before = corners[classes], classes
        for _ in range(N_STEPS):
            u -= dt * (L.matrix @ u)
            u[nodes] += dt * b[nodes]
        if shares is not None:
            p = balance(u, shares, start=p)
        classes = (u + p).argmax(axis=1)
        if np.array_equal(classes, before):
            break
    return u + p


def sources(nodes: NDArray[np.int64], Y: Array, *, n_nodes: int) -> Array:
    """``sum_j (Y_j - Ybar) delta_j``, whose columns sum to zero; shape (n_nodes, K)."""
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
        # The added rank-one term makes the solution unique; it vanishes there, since 1^T L = 0 = 1^T b.
        return solve_positive(L.matrix + np.outer(d, d / d.sum()), b)
    # Conjugate gradients stay in the Krylov space of b, on which L is positive definite.
    u = solve_positive(L.matrix, b)
    return u - d @ u / d.sum()
