"""Scores and the desired share of nodes in each class in; shifts of the scores that achieve it out."""

from __future__ import annotations

import numpy as np

from graphuq._warn import warn
from graphuq.graph.features import Array

_TOLERANCE = 1e-3  # of the share of a class, as in GraphLearning
_MOVES_PER_CLASS = 30  # usually 3 suffice; no number does if two classes keep exchanging the same nodes
_WARNED = 1e-2  # a larger error of a share causes a warning


def balance(u: Array, shares: Array, *, start: Array | None = None) -> Array:
    """Shifts p with mean zero for which a share b_k of the nodes has ``argmax_l (u_l + p_l) = k``; shape (K,).

    They minimize the convex ``mean_i max_k (u_ik + p_k) - sum_k b_k p_k``, whose gradient is the excess of each
    class over its share: the prices of the auction of Jacobs, Merkurjev and Esedoglu (2018). Coordinate descent
    shifts the class farthest from its share until it has it, and repeats until all errors are within 0.001, or one
    node. The best shifts found are returned, with a warning if a share is missed by more than 0.01, or three
    nodes.

    Args:
        u: scores, shape (n_nodes, K).
        shares: b, shape (K,), with sum 1.
        start: initial shifts, for example those of similar scores.
    """
    n_nodes, n_classes = u.shape
    p = np.zeros(n_classes) if start is None else start.copy()
    best, smallest = p, np.inf
    for _ in range(_MOVES_PER_CLASS * n_classes):
        scores = u + p
        error = np.abs(np.bincount(scores.argmax(axis=1), minlength=n_classes) / n_nodes - shares)
        k = error.argmax()
        if error[k] < smallest:
            best, smallest = p.copy(), error[k]
        if smallest <= max(_TOLERANCE, 1 / n_nodes):
            break
        # node i switches to class k once p_k exceeds this
        price = np.delete(scores, k, axis=1).max(axis=1) - u[:, k]
        p[k] = _between(price, round(shares[k] * n_nodes))
    if smallest > max(_WARNED, 3 / n_nodes):
        warn(
            f"class_shares are missed by up to {smallest:.3g}: too many nodes have the same scores. "
            "Join more neighbors, or label more nodes.",
            RuntimeWarning,
        )
    return best - best.mean()


def _between(values: Array, n: int) -> float:
    """A threshold with n of the values below it: midway between neighbors, or one beyond the extreme value."""
    ordered = np.partition(values, [max(n - 1, 0), min(n, values.size - 1)])
    if n == 0:
        return ordered[0] - 1
    return ordered[-1] + 1 if n == values.size else (ordered[n - 1] + ordered[n]) / 2
