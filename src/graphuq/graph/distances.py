"""Two sets of points in; their squared distances, or which of them are near each other, out, accurate for near pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphuq.graph.features import Array, squared_lengths
from graphuq.tall import row_blocks

Indices: TypeAlias = NDArray[np.intp]

_CANCELED = 1e-4  # below this share of |x|^2 + |y|^2 the matrix product has lost too many digits
_COINCIDENT = 1e-12  # distances below this share of the lengths are rounding (of a projection, say)
_ROUNDING = 1e-5  # in single precision a squared distance is off by less than this share of the squared lengths
_GROUP = 64  # the least of so many nodes stands for them while the K-th nearest is bounded from above


def squared_distances(X: Array, Y: Array) -> Array:
    """``|x_i - y_j|^2``, shape (rows of X, rows of Y); exactly 0 where two points coincide.

    ``|x|^2 + |y|^2 - 2 <x, y>`` is one matrix product, but it cancels where x and y are near; those
    entries are computed again by differences. Meant for one block of rows X at a time.
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
    """The n rows `among` some that are nearest to each of others, nearest first, shape (n_rows, n)."""
    order = np.argsort(squared_distances(X[rows], X[among]), axis=1, kind="stable")
    return among[order[:, :n]]


def nonzero_pairs(table: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Rows and columns of the true entries: as np.nonzero, but several times faster where they are few."""
    i, j = np.divmod(np.flatnonzero(table), table.shape[1])
    return i, j


def pair_squared_distances(X: Array, i: Indices, Y: Array, j: Indices, lengths: Array) -> Array:
    """``|x_i - y_j|^2`` for a list of pairs with their ``|x_i|^2 + |y_j|^2``, by differences; exactly 0 where two coincide."""
    squared = np.empty(i.size)
    for pairs in row_blocks(i.size, 16 * X.shape[1]):  # small blocks, which stay in the cache
        apart = X[i[pairs]]
        apart -= Y[j[pairs]]
        squared[pairs] = squared_lengths(apart)
    squared[squared <= _COINCIDENT**2 * lengths] = 0.0
    return squared


class Pairs(NamedTuple):
    """New points and nodes near them, ordered by point and then by distance."""

    points: Indices
    nodes: Indices
    squared: Array  # distances
    first: Indices  # where the pairs of each point begin, (n_points,)

    def nth(self, n: int) -> Indices:
        """The pair of each point and its n-th nearest node, from 0."""
        return self.first + n


@dataclass(frozen=True, eq=False)
class Search:
    """All nodes are compared with a point in single precision, and those that may be near once more in double.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        reach: the greatest length of one.
        twice: -2 times the nodes over that, transposed, in single precision, whose range is small.
        lengths: their squared lengths.
        radii: how far each node reaches, shape (n_nodes,).
    """

    points: Array
    reach: float
    twice: NDArray[np.float32]
    lengths: Array
    radii: Array

    @classmethod
    def of(cls, points: Array, radii: Array) -> Search:
        """Of nodes that reach so far."""
        lengths = squared_lengths(points)
        reach = float(np.sqrt(lengths.max())) or 1.0
        twice = np.ascontiguousarray((points / (-0.5 * reach)).T, dtype=np.float32)
        return cls(points, reach, twice, lengths, radii)

    def near(self, points: Array, n_neighbors: int) -> Pairs:
        """The K nearest nodes of each point at least, and all nodes that reach it; exact."""
        parts = []
        for rows in row_blocks(len(points), len(self.points) // 2):
            i, nodes, squared = self._near(points[rows], n_neighbors)
            parts.append((rows.start + i, nodes, squared))
        i, nodes, squared = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Pairs(i, nodes, squared, np.searchsorted(i, np.arange(len(points))))

    def _near(self, points: Array, n_neighbors: int) -> tuple[Indices, Indices, Array]:
        """Points, nodes and squared distances, ordered by point and then by distance."""
        own = squared_lengths(points)
        unit = max(self.reach, float(np.sqrt(own.max())))  # of length, in which nothing is too large
        own, lengths = own / unit**2, self.lengths / unit**2
        scaled = (points * (self.reach / unit / unit)).astype(np.float32)
        squared = scaled @ self.twice  # |x - y|^2 - |x|^2 to rounding
        squared += lengths.astype(np.float32)
        slack = _ROUNDING * (own + lengths.max())
        kth = _bound(squared, n_neighbors) + slack
        near = squared <= kth.astype(np.float32)[:, None]
        squared -= ((self.radii / unit) ** 2).astype(np.float32)
        near |= squared <= (slack - own).astype(np.float32)[:, None]
        i, j = nonzero_pairs(near)
        exact = pair_squared_distances(points, i, self.points, j, unit**2 * (own[i] + lengths[j]))
        order = np.lexsort((exact, i))
        return i[order], j[order], exact[order]


def _bound(values: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """At least the n-th smallest of each row: the n-th smallest of the least of groups, or itself where those are few."""
    n_groups = values.shape[1] // _GROUP
    if n_groups >= 4 * n:
        values = values[:, : n_groups * _GROUP].reshape(len(values), _GROUP, n_groups).min(axis=1)
    return np.partition(values, n - 1, axis=1)[:, n - 1]
