"""A graph, labeled nodes and their classes in; the same, checked, classes as rows of zeros with one 1, out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import expect_numbers, expect_whole, refuse_masked
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, MatrixLike


def read_problem(
    A: Graph | MatrixLike, nodes: ArrayLike, y: ArrayLike, n_classes: int | None, class_priors: ArrayLike | None
) -> tuple[Graph, NDArray[np.intp], Array, Array | None]:
    """What all methods are given, checked: the graph, labeled nodes and Y, see `one_hot`, and shares of classes, (K,)."""
    graph = as_graph(A)
    nodes, Y = one_hot(nodes, y, n_nodes=graph.n_nodes, n_classes=n_classes)
    return graph, nodes, Y, None if class_priors is None else _shares(class_priors, Y)


def one_hot(
    nodes: ArrayLike, y: ArrayLike, *, n_nodes: int, n_classes: int | None
) -> tuple[NDArray[np.intp], Array]:
    """The labeled nodes, shape (n_labeled,), and Y with ``Y_jk = 1`` if node j has class k, (n_labeled, K).

    Args:
        nodes: the labeled nodes, each once.
        y: their classes, 0 to K - 1; or -1 and +1, which are classes 0 and 1 of two.
        n_nodes: nodes of the graph.
        n_classes: K, or None if each class has a label.
    """
    refuse_masked(nodes, "nodes")
    refuse_masked(y, "y")
    nodes, y = np.asarray(nodes), np.asarray(y)
    if n_classes is not None:
        expect_whole(n_classes, "n_classes", 2, n_nodes)
    if nodes.ndim != 1 or nodes.size == 0 or not np.issubdtype(nodes.dtype, np.integer):
        raise ValueError(
            f"nodes must be a list of one or more node numbers, got {nodes.dtype} of the shape {nodes.shape}."
        )
    if nodes.min() < 0 or nodes.max() >= n_nodes:
        raise ValueError(f"nodes must lie between 0 and {n_nodes - 1}, got {nodes.min()} to {nodes.max()}.")
    if np.unique(nodes).size < nodes.size:
        raise ValueError("Each labeled node must be listed once, but some are repeated.")
    if y.shape != nodes.shape:
        raise ValueError(f"y must have one class for each of {nodes.size} labeled nodes, got the shape {y.shape}.")
    if y.dtype.kind not in "buif" or not (np.isfinite(y).all() and np.array_equal(y, np.round(y))):
        raise ValueError("y must hold whole numbers: number the classes 0, 1, ..., and list labeled nodes only.")
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"Only one class, {classes[0]}, is labeled, and two are needed to tell apart.")
    if n_classes in (None, 2) and np.array_equal(classes, [-1, 1]):
        return nodes, np.column_stack([y == -1, y == 1]).astype(np.float64)
    if n_classes is None and not np.array_equal(classes, np.arange(classes.size)):
        raise ValueError(
            f"y must number the classes 0, 1, ... with none left out, or be -1 and +1, got {_start(classes)}. "
            "Give n_classes if some have no label."
        )
    K = classes.size if n_classes is None else n_classes
    if classes[0] < 0 or classes[-1] >= K:
        raise ValueError(f"y must lie between 0 and {K - 1} for {K} classes, got {_start(classes)}.")
    return nodes, np.eye(K)[y.astype(np.intp)]


def _start(classes: NDArray[Any]) -> str:
    """The first few of them."""
    return ", ".join(f"{k:g}" for k in classes[:5]) + (", ..." if classes.size > 5 else "")


def _shares(class_priors: ArrayLike, Y: Array) -> Array:
    """The share of each class, shape (K,), with sum 1; Y are the known labels, (n_labeled, K)."""
    shares = expect_numbers(class_priors, "class_priors")
    n_classes = Y.shape[1]
    if shares.shape != (n_classes,):
        raise ValueError(
            f"class_priors must hold a share for each of {n_classes} classes, got the shape {shares.shape}."
        )
    if not (np.isfinite(shares).all() and shares.min() >= 0 and shares.sum() > 0):
        raise ValueError(
            f"class_priors must be shares of the nodes, none negative, got {shares.min():g} to {shares.max():g}."
        )
    if shares[~Y.any(axis=0)].any():
        raise ValueError("class_priors must be 0 for a class that no node is labeled with.")
    return shares / shares.sum()
