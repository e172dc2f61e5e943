"""Two sets of points in; their squared distances, accurate even for near pairs, or their nearest neighbors out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphuq.graph.features import Array, squared_lengths
from graphuq.tall import row_blocks

Indices: TypeAlias = NDArray[np.intp]

_CANCELED = 1e-4  # below this fraction of |x|^2 + |y|^2 the matrix product has lost too many digits
_COINCIDENT = 1e-12  # distances below this fraction of the lengths are rounding (of a projection, say)
_ROUNDING = 1e-5  # bound on the error of squared distances in single precision, relative to the squared lengths
_GROUP = 64  # nodes per group, whose minima bound the distance to the K-th nearest node from above


def squared_distances(X: Array, Y: Array) -> Array:
    """``|x_i - y_j|^2``, shape (rows of X, rows of Y); exactly 0 where two points coincide.

    ``|x|^2 + |y|^2 - 2 <x, y>`` is one matrix product, but it suffers from cancellation where x and y are near:
    those entries are recomputed from differences. Meant for one block of rows X at a time.
    """
    of_x, of_y = squared_lengths(X), squared_lengths(Y)
    squared = X @ Y.T
    squared *= -2
    lengths = of_x[:, None] + of_y
    squared += lengths
    lengths *= _CANCELED
    i, j = nonzero_pairs(squared <= lengths)
    squared[i, j] = pair_squared_distances(X, i, Y, j, of_x[i] + of_y[j])
    return squared


def nearest_among(X: Array, rows: Indices, among: Indices, n: int) -> Indices:
    """For each of `rows` of X, its n nearest rows out of `among`, nearest first, shape (n_rows, n)."""
    order = np.argsort(squared_distances(X[rows], X[among]), axis=1, kind="stable")
    return among[order[:, :n]]


def nonzero_pairs(table: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Row and column indices of the true entries: np.nonzero, but several times faster where these are few."""
    i, j = np.divmod(np.flatnonzero(table), table.shape[1])
    return i, j


def pair_squared_distances(X: Array, i: Indices, Y: Array, j: Indices, lengths: Array) -> Array:
    """``|x_i - y_j|^2`` for pairs (i, j), from differences; exactly 0 where the points coincide.

    `lengths` are ``|x_i|^2 + |y_j|^2``, relative to which coincidence is judged.
    """
    squared = np.empty(i.size)
    for pairs in row_blocks(i.size, 16 * X.shape[1]):  # small blocks stay in the cache
        differences = X[i[pairs]]
        differences -= Y[j[pairs]]
        squared[pairs] = squared_lengths(differences)
    squared[squared <= _COINCIDENT**2 * lengths] = 0.0
    return squared


class Pairs(NamedTuple):
    """Pairs of new points and nodes near them, sorted by point, then by distance."""

    points: Indices
    nodes: Indices
    squared: Array  # squared distances
    first: Indices  # index of the first pair of each point, (n_points,)

    def nth(self, n: int) -> Indices:
        """Index of the pair formed by each point and its n-th nearest node, counted from 0."""
        return self.first + n


@dataclass(frozen=True, eq=False)
class Search:
    """Exact search for nodes near new points: all nodes are screened in single precision, candidates in double.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        reach: the largest norm of a node.
        twice: ``-2 points^T / reach`` in single precision; scaled because the range of that is small.
        lengths: squared norms of the nodes, shape (n_nodes,).
        radii: distance up to which each node is joined to a new point, shape (n_nodes,).
    """

    points: Array
    reach: float
    twice: NDArray[np.float32]
    lengths: Array
    radii: Array

    @classmethod
    def of(cls, points: Array, radii: Array) -> Search:
        """Prepare a search among these nodes."""
        lengths = squared_lengths(points)
        reach = float(np.sqrt(lengths.max())) or 1.0
        twice = np.ascontiguousarray((points / (-0.5 * reach)).T, dtype=np.float32)
        return cls(points, reach, twice, lengths, radii)

    def near(self, points: Array, n_neighbors: int) -> Pairs:
        """At least the K nearest nodes of each point, and every node whose radius covers it; exact distances."""
        parts = []
        for rows in row_blocks(len(points), len(self.points) // 2):
            i, nodes, squared = self._near(points[rows], n_neighbors)
            parts.append((rows.start + i, nodes, squared))
        i, nodes, squared = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
        return Pairs(i, nodes, squared, np.searchsorted(i, np.arange(len(points))))

    def _near(self, points: Array, n_neighbors: int) -> tuple[Indices, Indices, Array]:
        """Points, nodes and squared distances of near pairs, sorted by point, then by distance."""
        of_points = squared_lengths(points)
        unit = max(self.reach, float(np.sqrt(of_points.max())))  # unit of length that avoids overflow in float32
        of_points, of_nodes = of_points / unit**2, self.lengths / unit**2
        scaled = (points * (self.reach / unit / unit)).astype(np.float32)
        squared = scaled @ self.twice  # with |y|^2 added: |x - y|^2 - |x|^2, up to rounding
        squared += of_nodes.astype(np.float32)
        slack = _ROUNDING * (of_points + of_nodes.max())
        kth = _bound(squared, n_neighbors) + slack
        near = squared <= kth.astype(np.float32)[:, None]
        squared -= ((self.radii / unit) ** 2).astype(np.float32)
        near |= squared <= (slack - of_points).astype(np.float32)[:, None]
        i, j = nonzero_pairs(near)
        exact = pair_squared_distances(points, i, self.points, j, unit**2 * (of_points[i] + of_nodes[j]))
        order = np.lexsort((exact, i))
        return i[order], j[order], exact[order]


def _bound(values: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Upper bound on the n-th smallest value of each row: that of the group minima; exact where groups are few."""
    n_groups = values.shape[1] // _GROUP
    if n_groups >= 4 * n:
        values = values[:, : n_groups * _GROUP].reshape(len(values), _GROUP, n_groups).min(axis=1)
    return np.partition(values, n - 1, axis=1)[:, n - 1]
