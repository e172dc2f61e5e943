"""A spectrum or a graph, and labels, in; the answers of two classical methods, with no uncertainty, out."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg

from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, Matrix, MatrixLike
from graphuq.laplacian import connected_components, unnormalized
from graphuq.spectrum.result import Spectrum

_RESIDUAL = 1e-12  # of the right-hand side, at which an iterative solution is exact for every purpose
_MAX_STEPS = 10_000


def fiedler(spectrum: Spectrum) -> NDArray[np.int64]:
    """Two clusters without labels: the sign of the Fiedler vector q_1 (Sec. 2.2), +1 or -1 for each node.

    The threshold is 0, which for the normalized Laplacian cuts ``D^{-1/2} q_1`` at 0 as well. Which
    cluster is called +1 means nothing.
    """
    if spectrum.n_modes < 2:
        raise ValueError("The Fiedler vector is the second mode, but the spectrum has only one.")
    if spectrum.n_components > 1:
        raise ValueError(
            f"The graph falls into {spectrum.n_components} components, so its Fiedler vector is not unique. "
            "Join more neighbors, or cluster each component by itself."
        )
    return np.where(spectrum.vectors[:, 1] >= 0, 1, -1)


def harmonic(A: Graph | MatrixLike, nodes: ArrayLike, y: ArrayLike, *, noise: float | None = None) -> Array:
    """Harmonic functions of Zhu, Ghahramani and Lafferty (2003): real-valued u at every node.

    Hard, with no noise: ``u = y`` at the labeled nodes and ``(D - A) u = 0`` at all others, so that u is
    the weighted mean of its neighbors. Soft: the minimizer of
    ``<u, (D - A) u> / 2 + sum_j (u_j - y_j)^2 / (2 noise^2)``, the sum over labeled nodes.

    Args:
        A: a graph, or a matrix of weights. Sparse systems are solved by conjugate gradients.
        nodes: the labeled nodes, shape (n_labeled,), each once.
        y: their values, shape (n_labeled,); or (n_labeled, n_classes), with one column a class.
        noise: standard deviation of the values y, or None if they hold exactly.
    """
    graph = as_graph(A)
    nodes, y = _check_labels(graph, nodes, y)
    if noise is not None and not (np.isfinite(noise) and noise > 0):
        raise ValueError(f"noise must be a positive number, or None for exact labels, got {noise}.")
    n_components, component = connected_components(graph)
    n_reached = np.unique(component[nodes]).size
    if n_reached < n_components:
        raise ValueError(
            f"{n_components - n_reached} of {n_components} components of the graph have no label, so u is not "
            "determined there. Label a node in each, or join more neighbors."
        )

    # both are corrections to the field that is y where labeled and 0 elsewhere, which keeps small noise harmless
    L = unnormalized(graph).matrix
    u = np.zeros((graph.n_nodes, *y.shape[1:]))
    u[nodes] = y
    force = -(L @ u)
    if noise is None:
        free = np.setdiff1d(np.arange(graph.n_nodes), nodes)
        if free.size:
            u[free] = _solve(L[free][:, free], force[free])
        return u
    precision = np.zeros(graph.n_nodes)
    precision[nodes] = noise**-2
    if isinstance(L, np.ndarray):
        L[np.diag_indices(graph.n_nodes)] += precision
    else:
        L = csr_array(L + diags_array(precision))
    return u + _solve(L, force)


def _check_labels(graph: Graph, nodes: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.intp], Array]:
    nodes, y = np.asarray(nodes), np.asarray(y, dtype=np.float64)
    if nodes.ndim != 1 or nodes.size == 0 or not np.issubdtype(nodes.dtype, np.integer):
        raise ValueError(f"nodes must be a list of one or more node numbers, got {nodes!r}.")
    if nodes.min() < 0 or nodes.max() >= graph.n_nodes:
        raise ValueError(f"nodes must lie between 0 and {graph.n_nodes - 1}, got {nodes.min()} to {nodes.max()}.")
    if np.unique(nodes).size < nodes.size:
        raise ValueError("Each labeled node must be listed once, but some are repeated.")
    if y.ndim not in (1, 2) or len(y) != nodes.size:
        raise ValueError(f"y must have a row for each of {nodes.size} labeled nodes, got the shape {y.shape}.")
    if not np.isfinite(y).all():
        raise ValueError("y must be finite. List labeled nodes only.")
    return nodes, y


def _solve(M: Matrix, b: Array) -> Array:
    """``M^{-1} b`` for a symmetric positive definite M, one solution for each column of b."""
    if isinstance(M, np.ndarray):
        return solve(M, b, assume_a="pos", overwrite_a=True)
    columns = b.reshape(len(b), -1)
    solution = np.empty_like(columns)
    inverse_diagonal = diags_array(1 / M.diagonal())
    for k, column in enumerate(columns.T):
        solution[:, k], failed = cg(M, column, rtol=_RESIDUAL, maxiter=_MAX_STEPS, M=inverse_diagonal)
        if failed:
            warnings.warn(
                "Conjugate gradients did not converge: parts of the graph hardly touch a label. "
                "Join more neighbors, or label more nodes.",
                RuntimeWarning,
                stacklevel=3,
            )
    return solution.reshape(b.shape)
