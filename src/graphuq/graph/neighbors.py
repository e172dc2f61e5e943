"""Features in; a sparse graph that joins nearest neighbors out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.sparse import csr_array, eye_array

from graphuq._recipe import recipe
from graphuq.graph.distances import Indices, pair_squared_distances, row_blocks, squared_distances
from graphuq.graph.features import Array, MatrixLike, check_features, prepare
from graphuq.graph.kernel import Kernel, affinity, check_n_neighbors, check_tau, kth_distance
from graphuq.graph.landmarks import kmeans_centers
from graphuq.graph.weights import Graph

# Exact search compares all pairs: 70,000 nodes in 50 dimensions take about 30 core-seconds.
_EXACT_UP_TO = 100_000
# A tree beats comparing all pairs in few dimensions: at 70,000 nodes 4 times in 6, not in 10.
_TREE_UP_TO = 8
# Cells searched for each node: recall 0.99 on 70,000 digits in 264 cells.
_N_PROBES = 16


@recipe
def knn(
    X: MatrixLike,
    *,
    n_neighbors: int = 20,
    weights: Literal["self_tuning"] | float = "self_tuning",
    method: Literal["auto", "exact", "approximate"] = "auto",
    n_components: int | None = None,
    self_weights: bool = False,
    seed: int = 0,
) -> Graph:
    """Sparse weights: nodes i and j are joined if either is among the K nearest neighbors of the other.

    An edge has its full weight (5.1), be it wanted from one side or from both. Ties for the K-th place
    are broken arbitrarily. Where K or more nodes coincide with node i, its scale tau_i is its distance
    to the nearest node that does not.

    Args:
        X: features, shape (n_nodes, n_features); may be sparse if they are projected.
        n_neighbors: K, for the edges and for the self-tuning scales tau_i.
        weights: "self_tuning", or a number tau for ``exp(-|x_i - x_j|^2 / (2 tau^2))``.
        method: how neighbors are found. "approximate" misses about one in a hundred; "auto" is exact up
            to 100,000 nodes, and in up to 8 dimensions.
        n_components: project the features to this many principal components first.
        self_weights: whether ``a_ii`` is 1 or 0.
        seed: of the approximate search.
    """
    X = check_features(X, n_components=n_components)
    check_n_neighbors(n_neighbors, X.shape[0])
    if method not in ("auto", "exact", "approximate"):
        raise ValueError(f'method must be "auto", "exact" or "approximate", got {method!r}.')
    if isinstance(weights, str):
        if weights != "self_tuning":
            raise ValueError(f'weights must be "self_tuning" or a number tau, got {weights!r}.')
    else:
        check_tau(weights)

    features = prepare(X, n_components)
    points = features.points
    if method == "auto":
        small = len(points) <= _EXACT_UP_TO or points.shape[1] <= _TREE_UP_TO
        method = "exact" if small else "approximate"
    if method == "exact":
        neighbors = exact_neighbors(points, n_neighbors)
    else:
        neighbors = approximate_neighbors(points, n_neighbors, seed=seed)

    i, j = np.repeat(np.arange(len(points)), n_neighbors), neighbors.ravel()
    squared = pair_squared_distances(points, i, points, j)
    radii = np.sqrt(squared.reshape(neighbors.shape).max(axis=1))
    tau = _scales(points, radii) if isinstance(weights, str) else float(weights)
    tau_nodes = np.broadcast_to(tau, len(points))
    A = csr_array((affinity(squared, tau_nodes[i], tau_nodes[j]), (i, j)), shape=(len(points), len(points)))
    A = A.maximum(A.T)
    if self_weights:
        A = A + eye_array(len(points))
    A = csr_array(A)
    A.eliminate_zeros()  # weights too small for a float are no edges
    return Graph(A, features, Kernel(tau, n_neighbors, radii))


def exact_neighbors(points: Array, n_neighbors: int) -> Indices:
    """The K nearest other points of each point, shape (n_nodes, n_neighbors)."""
    from sklearn.neighbors import NearestNeighbors

    algorithm = "kd_tree" if points.shape[1] <= _TREE_UP_TO else "brute"
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm=algorithm, n_jobs=-1).fit(points)
    return search.kneighbors(return_distance=False)


def approximate_neighbors(points: Array, n_neighbors: int, *, seed: int) -> Indices:
    """Most of the K nearest other points of each point, shape (n_nodes, n_neighbors).

    An inverted file (Jegou, Douze and Schmid 2011): k-means cuts the points into about sqrt(N) cells, and each
    point is compared only with the points in the cells whose centers are nearest to it.
    """
    from sklearn.neighbors import NearestNeighbors

    def nearest(queries: Array, among: Array, n: int) -> tuple[Array, Indices]:
        return NearestNeighbors(n_neighbors=n, algorithm="brute").fit(among).kneighbors(queries)

    found = np.full((len(points), n_neighbors), -1)
    distances = np.full(found.shape, np.inf)

    def compare(visitors: Indices, cell: Indices) -> None:
        # one more than wanted, since a member finds itself
        distance, local = nearest(points[visitors], points[cell], min(n_neighbors + 1, cell.size))
        candidate = cell[local]
        distance[candidate == visitors[:, None]] = np.inf
        distance = np.concatenate([distances[visitors], distance], axis=1)
        candidate = np.concatenate([found[visitors], candidate], axis=1)
        best = np.argpartition(distance, n_neighbors - 1, axis=1)[:, :n_neighbors]
        distances[visitors] = np.take_along_axis(distance, best, axis=1)
        found[visitors] = np.take_along_axis(candidate, best, axis=1)

    centers = kmeans_centers(points, round(np.sqrt(len(points))), seed=seed)
    probes = nearest(points, centers, min(_N_PROBES, len(centers)))[1]
    cells, visitors = _groups(probes[:, :1], len(centers)), _groups(probes, len(centers))
    for visitor, cell in zip(visitors, cells, strict=True):
        if cell.size:
            compare(visitor, cell)
    short = np.flatnonzero(np.isinf(distances).any(axis=1))
    if short.size:  # their cells hold fewer than K others
        distances[short] = np.inf
        compare(short, np.arange(len(points)))
    return found


def _groups(labels: Indices, n_groups: int) -> list[Indices]:
    """For each group, the rows of `labels` in which it occurs."""
    order = np.argsort(labels, axis=None, kind="stable")
    ends = np.searchsorted(labels.ravel()[order], np.arange(1, n_groups))
    return np.split(order // labels.shape[1], ends)


def _scales(points: Array, radii: Array) -> Array:
    """tau_i: the distance to the K-th neighbor, or to the nearest point that does not coincide."""
    tau = radii.copy()
    coincident = np.flatnonzero(radii == 0)
    for rows in row_blocks(coincident.size, len(points)):
        nodes = coincident[rows]
        tau[nodes] = kth_distance(squared_distances(points[nodes], points), 1)
    return tau
