"""Features in; a sparse nearest-neighbor graph out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from graphuq._expect import expect, expect_count, expect_flag, expect_one_of, expect_scale, expect_seed
from graphuq._recipe import recipe
from graphuq.graph.distances import Indices, Search, nonzero_pairs, pair_squared_distances, squared_distances
from graphuq.graph.features import Array, MatrixLike, check_features, prepare, squared_lengths
from graphuq.graph.kernel import Kernel, affinity, kth_distance
from graphuq.graph.landmarks import kmeans_centers
from graphuq.graph.weights import Graph
from graphuq.large import sums
from graphuq.large.passes import each_part
from graphuq.tall import Tall, row_blocks

# Exact search compares all pairs: 30,000 nodes in 50 dimensions take about 6 core-seconds, 70,000 about 30.
_EXACT_UP_TO = 30_000
# In few dimensions a k-d tree beats brute force: at 70,000 nodes 4 times faster in 6 dimensions, not in 10.
_TREE_UP_TO = 8
# Cells searched for each node: recall 0.99 on 70,000 digits in 264 cells.
_N_PROBES = 16


@recipe
def knn(
    X: MatrixLike,
    *,
    n_neighbors: int = 20,
    weights: Literal["self_tuning"] | float = "self_tuning",
    method: Literal["auto", "exact", "approximate"] | Callable[[Array, int], ArrayLike] = "auto",
    n_components: int | None = None,
    robust: bool = False,
    unit_length: bool = False,
    seed: int = 0,
) -> Graph:
    """Sparse graph in which nodes i and j are joined if either is among the K nearest neighbors of the other.

    An edge has its full weight (5.1), whether the relation holds in one direction or in both. Ties for the K-th
    neighbor are broken arbitrarily. Where K or more nodes coincide with node i, its scale tau_i is the distance to
    the nearest node that does not coincide.

    Args:
        X: features, shape (n_nodes, n_features); may be sparse if they are projected. Features in a store are read
            into memory; an approximate search runs on the cluster of an open Dask client.
        n_neighbors: K, for the edges and for the self-tuning scales tau_i. With 20 most graphs are connected, as the
            priors of the paper need; `GraphClassifier` uses 5, which suit its learned prior.
        weights: "self_tuning", or a number tau for ``exp(-|x_i - x_j|^2 / (2 tau^2))``.
        method: neighbor search. "approximate" misses about one neighbor in a hundred of images, and more of points
            that fill many dimensions evenly; "auto" is exact up to 30,000 nodes, or in up to 8 dimensions.
            Alternatively a function that searches an index of your own: given the points (after scaling and projection)
            and a number n, it returns the indices of the n nearest points of each, which may include the point itself.
        n_components: project the features to this many principal components first.
        robust: compare the features in compressed robust units (`graph.units`) instead of as given.
        unit_length: scale every row to length 1, before and after it is centered and projected: distances then
            compare directions, as is usual for word counts.
        seed: seed of the approximate search.
    """
    here = not isinstance(X, Tall)
    X = check_features(X, n_components=n_components)
    n_neighbors = expect_count(n_neighbors, "n_neighbors", X.shape[0] - 1, "the number of other nodes")
    if not callable(method):
        expect_one_of(method, ("auto", "exact", "approximate"), "method")
    seed = expect_seed(seed)
    expect_flag(robust, "robust")
    expect_flag(unit_length, "unit_length")
    if not isinstance(weights, str):
        expect(weights, Real, "weights", '"self_tuning" or a number tau above 0')
        weights = expect_scale(weights, "weights")
    elif weights != "self_tuning":
        raise ValueError(f'weights must be "self_tuning" or a number tau, got {weights!r}.')

    features = prepare(X, n_components, robust=robust, unit_length=unit_length)
    points = features.points
    if method == "auto":
        small = len(points) <= _EXACT_UP_TO or points.shape[1] <= _TREE_UP_TO
        method = "exact" if small else "approximate"
    if callable(method):
        neighbors = _neighbors_by(method, points, n_neighbors)
    elif method == "exact":
        (neighbors,) = sums.once(lambda: (exact_neighbors(points, n_neighbors),), "exact", points, n_neighbors)
    else:
        neighbors = approximate_neighbors(points, n_neighbors, seed=seed, here=here)

    i, j = np.repeat(np.arange(len(points)), n_neighbors), neighbors.ravel()
    lengths = squared_lengths(points)
    squared = pair_squared_distances(points, i, points, j, lengths[i] + lengths[j])
    radii = np.sqrt(squared.reshape(neighbors.shape).max(axis=1))
    tau = _scales(points, radii) if isinstance(weights, str) else float(weights)
    tau_nodes = np.broadcast_to(tau, len(points))
    A = csr_array((affinity(squared, tau_nodes[i], tau_nodes[j]), (i, j)), shape=(len(points), len(points)))
    A = csr_array(A.maximum(A.T))
    A.eliminate_zeros()  # weights that underflow are not edges
    return Graph(A, features, Kernel(tau, n_neighbors, radii))


def exact_neighbors(points: Array, n_neighbors: int) -> Indices:
    """Indices of the K nearest other points of each point, nearest first, shape (n_nodes, n_neighbors)."""
    if points.shape[1] <= _TREE_UP_TO:
        tree = KDTree(points, balanced_tree=False)  # medians take long where many points coincide
        found = np.asarray(tree.query(points, n_neighbors + 1, workers=-1)[1])
    else:
        found = Search.of(points).nearest(points, n_neighbors + 1)
    return _others(found, np.arange(len(points)))


def _neighbors_by(search: Callable[[Array, int], ArrayLike], points: Array, n_neighbors: int) -> Indices:
    """Indices of K other points near each point, found by the caller's own search function."""
    found, shape = np.asarray(search(points, n_neighbors + 1)), (len(points), n_neighbors + 1)
    if found.shape != shape or found.dtype.kind not in "iu":
        raise TypeError(
            f"method must return the indices of {shape[1]} points near each, whole numbers of the shape {shape}, got "
            f"{found.dtype} of the shape {found.shape}."
        )
    ordered = np.sort(found, axis=1)
    wrong = (ordered[:, 0] < 0) | (ordered[:, -1] >= len(points)) | (np.diff(ordered) == 0).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"method must find {shape[1]} different points for each of {len(points):,}, and for point {row} it returned "
            f"{found[row].tolist()}: let it search more of its index."
        )
    return _others(found.astype(np.intp), np.arange(len(points)))


def _others(found: Indices, nodes: Indices) -> Indices:
    """The nearest points of each node without itself, given one too many, shape (n_nodes, n_neighbors)."""
    itself = found == nodes[:, None]
    itself[~itself.any(axis=1), -1] = True  # among many coincident points, a point may not find itself
    return found[~itself].reshape(len(nodes), -1)


def approximate_neighbors(points: Array, n_neighbors: int, *, seed: int, here: bool = True) -> Indices:
    """Indices of most of the K nearest other points of each point, shape (n_nodes, n_neighbors).

    An inverted file (Jegou, Douze and Schmid 2011): k-means partitions the points into about sqrt(N) cells, and
    each point is compared only with the points in the cells whose centers are nearest to it. Its own cell comes
    first; in the others only points nearer than its current K-th neighbor count. All work but k-means, whose share
    falls with N, runs in threads of this process (`here`) or on the open Dask cluster.
    """
    n_cells = round(np.sqrt(len(points)))
    (probes,) = sums.once(
        lambda: (_probes(points, n_cells, seed=seed, here=here),), "probes", points, seed, _N_PROBES
    )
    near, cells = _Nearest.of(points, n_neighbors), _groups(probes[:, :1], n_cells)
    visits = [(cell, cell) for cell in cells] + list(zip(_groups(probes[:, 1:], n_cells), cells, strict=True))

    def search(n_done: int, checkpoint: sums.Sums | None) -> Iterator[Any]:
        if checkpoint is not None:
            near.found[...], near.squared[...] = checkpoint
        for work, pending in ((_nearest, visits[n_done:n_cells]), (_nearer, visits[max(n_done, n_cells) :])):
            tasks = (near.visit(*visit) for visit in pending)
            yield from zip(pending, each_part(work, tasks, here=here), strict=True)

    def merge(_: sums.Sums | None, part: Any) -> sums.Sums:
        (visitors, cell), candidates = part
        (near.put if visitors is cell else near.take)(visitors, cell, *candidates)
        return near.found, near.squared

    sums.going_on(search, merge, "neighbors", points, probes, n_neighbors)
    short = np.flatnonzero(np.isinf(near.squared).any(axis=1))  # their cells hold fewer than K other points
    if short.size:
        near.found[short] = _others(Search.of(points).nearest(points[short], n_neighbors + 1), short)
    return near.found


def _probes(points: Array, n_cells: int, *, seed: int, here: bool) -> Indices:
    """Cells to search for each point, nearest center first, shape (n_nodes, n_probes)."""
    search = Search.of(kmeans_centers(points, n_cells, seed=seed))
    blocks = (points[rows] for rows in row_blocks(*points.shape))
    nearest = partial(search.nearest, n=min(_N_PROBES, n_cells))
    return np.concatenate(list(each_part(nearest, blocks, here=here)))


class _Nearest(NamedTuple):
    """Current neighbor lists, nearest first, by squared distances in single precision."""

    points: Array
    found: Indices  # (n_points, n_neighbors), -1 where no neighbor is known yet
    squared: NDArray[np.float32]

    @classmethod
    def of(cls, points: Array, n_neighbors: int) -> _Nearest:
        found = np.full((len(points), n_neighbors), -1)
        return cls(points, found, np.full(found.shape, np.inf, np.float32))

    def put(self, visitors: Indices, cell: Indices, j: Indices, squared: NDArray[np.float32]) -> None:
        """Replace the visitors' neighbor lists by the nearest points of a cell, excluding each point itself."""
        candidates = cell[j]
        squared = np.where(candidates == visitors[:, None], np.float32(np.inf), squared)
        self.found[visitors], self.squared[visitors] = -1, np.inf
        self._merge(visitors, candidates, squared)

    def visit(self, visitors: Indices, cell: Indices) -> _Visit:
        """The task of comparing visiting points with the points of a cell.

        Seen from the center of the cell, single precision resolves distances within it, however far away it lies.
        """
        members = self.points[cell]
        center = members.mean(axis=0) if len(cell) else np.zeros(members.shape[1])
        near, visiting = ((points - center).astype(np.float32) for points in (members, self.points[visitors]))
        return _Visit(visiting, -2 * near, _squares(near), self.squared[visitors, -1:], self.found.shape[1])

    def take(
        self, visitors: Indices, cell: Indices, row: Indices, rank: Indices, j: Indices, squared: Any
    ) -> None:
        """Merge in points of a cell that are still nearer than the K-th neighbor, which may have changed since."""
        changed, row = np.unique(row, return_inverse=True)
        nearer = np.full((changed.size, self.found.shape[1]), np.inf, np.float32)
        candidates = np.full(nearer.shape, -1)
        nearer[row, rank], candidates[row, rank] = squared, cell[j]
        nearer[nearer >= self.squared[visitors[changed], -1:]] = np.inf
        self._merge(visitors[changed], candidates, nearer)

    def _merge(self, visitors: Indices, candidates: Indices, squared: NDArray[np.float32]) -> None:
        squared = np.concatenate([self.squared[visitors], squared], axis=1)
        candidates = np.concatenate([self.found[visitors], candidates], axis=1)
        best = np.argsort(squared, axis=1)[:, : self.found.shape[1]]
        self.squared[visitors] = np.take_along_axis(squared, best, axis=1)
        self.found[visitors] = np.take_along_axis(candidates, best, axis=1)


class _Visit(NamedTuple):
    """Visiting points, a cell's points times -2 and their squared lengths, a distance bound per visitor, and K."""

    points: NDArray[np.float32]
    twice: NDArray[np.float32]
    lengths: NDArray[np.float32]
    farthest: NDArray[np.float32]
    n_neighbors: int


def _nearest(visit: _Visit) -> tuple[Indices, NDArray[np.float32]]:
    """The K + 1 nearest points of a cell (a member finds itself) for each visitor: their indices and distances."""
    squared = visit.points @ visit.twice.T
    squared += visit.lengths
    n_kept = min(visit.n_neighbors + 1, squared.shape[1])
    best = np.argpartition(squared, n_kept - 1, axis=1)[:, :n_kept] if n_kept else np.zeros(squared.shape, np.intp)
    return best, np.take_along_axis(squared, best, axis=1) + _squares(visit.points)[:, None]


def _nearer(visit: _Visit) -> tuple[Indices, Indices, Indices, NDArray[np.float32]]:
    """At most K points of a cell within each visitor's bound: visitor, rank by distance, point index, distance."""
    squared = visit.points @ visit.twice.T
    squared += visit.lengths
    own = _squares(visit.points)
    i, j = nonzero_pairs(squared < visit.farthest - own[:, None])
    order = np.lexsort((squared[i, j], i))
    i, j = i[order], j[order]
    rank = np.arange(i.size) - np.searchsorted(i, i)
    i, j, rank = (column[rank < visit.n_neighbors] for column in (i, j, rank))
    return i, rank, j, squared[i, j] + own[i]


def _squares(points: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.einsum("ij,ij->i", points, points))


def _groups(labels: Indices, n_groups: int) -> list[Indices]:
    """For each group, the rows of `labels` in which it occurs, as a list of index arrays."""
    order = np.argsort(labels, axis=None, kind="stable")
    ends = np.searchsorted(labels.ravel()[order], np.arange(1, n_groups))
    return np.split(order // labels.shape[1], ends)


def _scales(points: Array, radii: Array) -> Array:
    """Scales tau_i: distance to the K-th neighbor or, where that is 0, to the nearest non-coincident point."""
    tau = radii.copy()
    coincident = np.flatnonzero(radii == 0)
    for rows in row_blocks(coincident.size, len(points)):
        nodes = coincident[rows]
        tau[nodes] = kth_distance(squared_distances(points[nodes], points), 1)
    return tau
