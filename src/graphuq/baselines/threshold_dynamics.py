"""A graph and labels in; scores of classes that diffusion and thresholding leave as they are out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from graphuq._expect import expect_number, expect_whole
from graphuq.baselines.class_labels import one_hot
from graphuq.baselines.poisson_learning import potential, sources
from graphuq.baselines.volumes import balance, check_priors
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, MatrixLike
from graphuq.laplacian import unnormalized


def mbo(
    A: Graph | MatrixLike,
    nodes: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    class_priors: ArrayLike | None = None,
    fidelity: float = 1.0,
    n_rounds: int = 20,
    n_steps: int = 40,
) -> Array:
    """Poisson MBO of Calder, Cook, Thorpe and Slepcev (2020), Algorithm 2: scores, shape (n_nodes, K).

    The scheme of Merriman, Bence and Osher, with the sources b of `poisson`. From the classes k_i that `poisson`
    gives, repeat

        ``u_i = e_{k_i}``, then ``u <- u - dt ((D - A) u - fidelity b)`` a few times, then
        ``k_i = argmax_k (u_ik + p_k)``,

    until no class changes. Shifts p give the classes the sizes asked for, as weights of the columns do in that
    paper; without `class_priors` they are 0. The step ``dt = 1 / max_i d_i`` keeps the diffusion stable. The last
    ``u + p`` are the scores. Defaults are those of GraphLearning.

    Args:
        A: a connected graph, or a matrix of weights.
        nodes: the labeled nodes, shape (n_labeled,), each once.
        y: their classes, 0 to K - 1; or -1 and +1, which are classes 0 and 1 of two. Shape (n_labeled,).
        n_classes: K, if some classes have no label.
        class_priors: share of the nodes in each class, (K,).
        fidelity: weight of the labels against the graph.
        n_rounds: thresholdings at most.
        n_steps: diffusion steps before each.
    """
    graph = as_graph(A)
    nodes, Y = one_hot(nodes, y, n_nodes=graph.n_nodes, n_classes=n_classes)
    shares = None if class_priors is None else check_priors(class_priors, Y)
    expect_number(fidelity, "fidelity")
    expect_whole(n_rounds, "n_rounds")
    expect_whole(n_steps, "n_steps")

    L, b = unnormalized(graph), sources(nodes, Y, n_nodes=graph.n_nodes)
    dt = 1 / L.matrix.diagonal().max()
    corners, p = np.eye(Y.shape[1]), np.zeros(Y.shape[1])
    classes = potential(L, b).argmax(axis=1)
    for _ in range(n_rounds):
        u, before = corners[classes], classes
        for _ in range(n_steps):
            u -= dt * (L.matrix @ u)
            u[nodes] += dt * fidelity * b[nodes]
        if shares is not None:
            p = balance(u, shares, start=p)
        classes = (u + p).argmax(axis=1)
        if np.array_equal(classes, before):
            break
    return u + p
