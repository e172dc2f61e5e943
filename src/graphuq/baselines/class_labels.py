"""A graph, labeled nodes and their classes in; the same, validated, with one-hot encoded classes, out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_in_graph, expect_numbers, expect_whole
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, MatrixLike
from graphuq.models.base import check_labels, warned_before


def read_problem(
    A: Graph | MatrixLike, nodes: ArrayLike, y: ArrayLike, n_classes: int | None, class_shares: ArrayLike | None
) -> tuple[Graph, NDArray[np.int64], Array, Array | None]:
    """Validate the common arguments: graph, labeled nodes, one-hot labels Y, and class shares, (K,), if given.

    ``Y_jk = 1`` if the labeled node j has class k, else 0; shape (n_labeled, K).
    """
    graph = as_graph(A)
    with warned_before():  # a single class causes an error below, not a warning
        nodes, y = check_labels(nodes, y, n_classes)
    expect_in_graph(nodes, graph.n_nodes)
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"Only one class, {classes[0]}, is labeled, and at least two are needed.")
    K = classes.size if n_classes is None else expect_whole(n_classes, "n_classes", 2, graph.n_nodes)
    if classes[-1] >= K:
        raise ValueError(
            f"A label is {classes[-1]}, and {K} classes are numbered 0 to {K - 1}: give n_classes if some have no label."
        )
    Y = np.eye(K)[y]
    return graph, nodes, Y, None if class_shares is None else _shares(class_shares, Y)


def _shares(class_shares: ArrayLike, Y: Array) -> Array:
    """Validated class shares, normalized to sum 1, shape (K,); Y are the one-hot labels, (n_labeled, K)."""
    shares = expect_numbers(class_shares, "class_shares")
    n_classes = Y.shape[1]
    if shares.shape != (n_classes,):
        raise ValueError(
            f"class_shares must hold a share for each of {n_classes} classes, got the shape {shares.shape}."
        )
    if not (np.isfinite(shares).all() and shares.min() >= 0 and shares.sum() > 0):
        raise ValueError(
            f"class_shares must be shares of the nodes, none negative, got {shares.min():g} to {shares.max():g}."
        )
    if shares[~Y.any(axis=0)].any():
        raise ValueError("class_shares must be 0 for a class that no node is labeled with.")
    return shares / shares.sum()
