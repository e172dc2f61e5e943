"""Features in; a dense graph, with a weight between every pair of nodes, out."""

from __future__ import annotations

import numpy as np

from graphuq._expect import expect_count, expect_flag, expect_scale
from graphuq._recipe import recipe
from graphuq.graph.distances import squared_distances
from graphuq.graph.features import Array, Features, Matrix, MatrixLike, check_features, prepare
from graphuq.graph.kernel import Kernel, affinity, kth_distance
from graphuq.graph.weights import Graph, symmetrize
from graphuq.memory import check_room
from graphuq.tall import row_blocks

_MATRICES = 3  # dense matrices held at once when computing a spectrum: weights, Laplacian, eigenvectors


@recipe
def self_tuning(
    X: MatrixLike,
    *,
    n_neighbors: int = 10,
    n_components: int | None = None,
    robust: bool = False,
    unit_length: bool = False,
) -> Graph:
    """Self-tuning weights of Zelnik-Manor and Perona (2004) between all pairs of nodes.

    ``a_ij = exp(-|x_i - x_j|^2 / (2 tau_i tau_j))`` (5.1), with tau_i the distance of node i to its K-th
    nearest neighbor. Where K or more nodes coincide with node i, tau_i is the distance to the nearest
    node that does not coincide.

    Args:
        X: features, shape (n_nodes, n_features).
        n_neighbors: K.
        n_components, robust, unit_length: see `knn`.
    """
    X = check_features(X, n_components=n_components)
    n_neighbors = expect_count(n_neighbors, "n_neighbors", X.shape[0] - 1, "the number of other nodes")
    features, A = _all_squared_distances(X, n_components, robust, unit_length)
    blocks = list(row_blocks(*A.shape))
    tau = np.concatenate([kth_distance(A[rows], n_neighbors) for rows in blocks])
    for rows in blocks:
        A[rows] = affinity(A[rows], tau[rows, None], tau)
    np.fill_diagonal(A, 0.0)
    return Graph(A, features, Kernel(tau, n_neighbors))


@recipe
def gaussian(
    X: MatrixLike,
    *,
    tau: float,
    n_components: int | None = None,
    robust: bool = False,
) -> Graph:
    """Gaussian weights with a single length scale between all pairs of nodes.

    ``a_ij = exp(-|x_i - x_j|^2 / (2 tau^2))``: (5.1) with every tau_i equal.

    Args:
        X: features, shape (n_nodes, n_features).
        tau: length scale: the distance at which nodes still count as similar; `width` of `GraphClassifier`.
        n_components, robust: see `knn`.
    """
    X = check_features(X, n_components=n_components)
    tau = expect_scale(tau, "tau")
    features, A = _all_squared_distances(X, n_components, robust)
    for rows in row_blocks(*A.shape):
        A[rows] = affinity(A[rows], tau, tau)
    np.fill_diagonal(A, 0.0)
    return Graph(A, features, Kernel(tau))


def _all_squared_distances(
    X: Matrix, n_components: int | None, robust: bool, unit_length: bool = False
) -> tuple[Features, Array]:
    """Points and their squared distances, exactly symmetric; inf on the diagonal: no node is its own neighbor."""
    expect_flag(robust, "robust")
    expect_flag(unit_length, "unit_length")
    n_nodes = X.shape[0]
    check_room(
        _MATRICES * 8 * n_nodes**2,
        f"A dense graph of {n_nodes:,} nodes, with its spectrum,",
        "Use graph.knn for sparse weights or graph.nystrom for low-rank ones.",
    )
    features = prepare(X, n_components, robust=robust, unit_length=unit_length)
    squared = np.empty((n_nodes, n_nodes))
    for rows in row_blocks(*squared.shape):
        squared[rows] = squared_distances(features.points[rows], features.points)
    symmetrize(squared)
    np.fill_diagonal(squared, np.inf)
    return features, squared
