"""Scores, and the share of nodes that each class should have, in; shifts of the scores that give it out."""

from __future__ import annotations

import numpy as np

from graphuq._warn import warn
from graphuq.graph.features import Array

_TOLERANCE = 1e-3  # in the share of a class, as in GraphLearning
_MOVES_PER_CLASS = 30  # 3 are usual; where two classes pass few nodes to and fro no number is enough
_TOLD = 1e-2  # a share missed by more is told


def balance(u: Array, shares: Array, *, start: Array | None = None) -> Array:
    """Shifts p with mean zero for which a share b_k of the nodes has ``argmax_l (u_l + p_l) = k``; shape (K,).

    They minimize the convex ``mean_i max_k (u_ik + p_k) - sum_k b_k p_k``, whose gradient is how much too large
    the classes are: the prices of the auction of Jacobs, Merkurjev and Esedoglu (2018). Here the class farthest
    from its share is moved until it has it, and so on until all have theirs within 0.001, or one node. The best
    shifts seen are returned, with a warning if a share is missed by 0.01, or three nodes.

    Args:
        u: scores, shape (n_nodes, K).
        shares: b, shape (K,), with sum 1.
        start: shifts to begin from, those of similar scores say.
    """
    n_nodes, n_classes = u.shape
    p = np.zeros(n_classes) if start is None else start.copy()
    best, least = p, np.inf
    for _ in range(_MOVES_PER_CLASS * n_classes):
        scores = u + p
        miss = np.abs(np.bincount(scores.argmax(axis=1), minlength=n_classes) / n_nodes - shares)
        k = miss.argmax()
        if miss[k] < least:
            best, least = p.copy(), miss[k]
        if least <= max(_TOLERANCE, 1 / n_nodes):
            break
        # node i goes to class k once p_k exceeds this
        price = np.delete(scores, k, axis=1).max(axis=1) - u[:, k]
        p[k] = _between(price, round(shares[k] * n_nodes))
    if least > max(_TOLD, 3 / n_nodes):
        warn(
            f"class_priors are missed by up to {least:.3g}: too many nodes have the same scores. "
            "Join more neighbors, or label more nodes.",
            RuntimeWarning,
        )
    return best - best.mean()


def _between(values: Array, n: int) -> float:
    """A number that n of the values are below: halfway to the next, where there are any on both sides."""
    ordered = np.partition(values, [max(n - 1, 0), min(n, values.size - 1)])
    if n == 0:
        return ordered[0] - 1
    return ordered[-1] + 1 if n == values.size else (ordered[n - 1] + ordered[n]) / 2
