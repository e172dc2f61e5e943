"""Two sets of points in; their squared distances, accurate even for near pairs, or their nearest neighbors out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphuq._threads import in_threads
from graphuq.graph.features import Array, squared_lengths
from graphuq.tall import row_blocks

Indices: TypeAlias = NDArray[np.intp]

_CANCELED = 1e-4  # below this fraction of |x|^2 + |y|^2 the matrix product has lost too many digits
_COINCIDENT = 1e-12  # distances below this fraction of the lengths are rounding (of a projection, say)
# Bounds on the error of squared distances from a matrix product, relative to the squared lengths.
_ROUNDING, _ROUNDING_DOUBLE = 1e-5, 1e-14
_CROWD = 32  # a point with more candidates per neighbor than this is screened again, in double precision
_ALIKE = 1e-8  # squared distances that differ by less than this fraction count as equal in a crowd
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
    first: Indices  # index of the first pair of each point, that with its nearest node, (n_points,)


@dataclass(frozen=True, eq=False)
class Search:
    """Exact search for nodes near points: all nodes are screened by a matrix product, candidates by differences.

    The product is in single precision; where it leaves too many candidates, as in clusters far from the center, it
    is repeated in double precision.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        reach: the largest norm of a node.
        twice: ``-2 points^T / reach`` in single precision; scaled because single precision has a small range.
        lengths: squared norms of the nodes, shape (n_nodes,).
        radii: distance up to which each node is joined to a point, shape (n_nodes,); None if only the nearest count.
    """

    points: Array
    reach: float
    twice: NDArray[np.float32]
    lengths: Array
    radii: Array | None

    @classmethod
    def of(cls, points: Array, radii: Array | None = None) -> Search:
        """Prepare a search among these nodes."""
        lengths = squared_lengths(points)
        reach = float(np.sqrt(lengths.max())) or 1.0
        twice = np.ascontiguousarray((points / (-0.5 * reach)).T, dtype=np.float32)
        return cls(points, reach, twice, lengths, radii)

    def nearest(self, points: Array, n: int) -> Indices:
        """The n nearest nodes of each point, nearest first, shape (n_points, n); ties are broken arbitrarily."""
        pairs = self.near(points, n)
        return pairs.nodes[pairs.first[:, None] + np.arange(n)]

    def near(self, points: Array, n_neighbors: int) -> Pairs:
        """At least the K nearest nodes of each point, and every node whose radius covers it, with exact distances."""
        blocks = list(row_blocks(len(points), 2 * len(self.points)))
        parts = list(in_threads(lambda rows: self._near(points[rows], n_neighbors), blocks))
        i = np.concatenate([rows.start + part[0] for rows, part in zip(blocks, parts, strict=True)])
        nodes, squared = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        return Pairs(i, nodes, squared, np.searchsorted(i, np.arange(len(points))))

    def _near(self, points: Array, n_neighbors: int) -> tuple[Indices, Indices, Array]:
        """Points, nodes and squared distances of near pairs, sorted by point, then by distance."""
        i, j = self._candidates(points, n_neighbors)
        squared = pair_squared_distances(points, i, self.points, j, squared_lengths(points)[i] + self.lengths[j])
        order = np.lexsort((squared, i))
        return i[order], j[order], squared[order]

    def _candidates(self, points: Array, n_neighbors: int, *, double: bool = False) -> tuple[Indices, Indices]:
        """Pairs of points and nodes, among them all near ones, by matrix products in single or double precision."""
        of_points = squared_lengths(points)
        unit = max(self.reach, float(np.sqrt(of_points.max())))  # unit of length that avoids overflow in float32
        of_points, of_nodes = of_points / unit**2, self.lengths / unit**2
        dtype, rounding = (np.float64, _ROUNDING_DOUBLE) if double else (np.float32, _ROUNDING)
        squared: NDArray[np.floating]  # |x - y|^2 - |x|^2, up to rounding
        if double:
            squared = (points * (-2 / unit / unit)) @ self.points.T
        else:
            squared = (points * (self.reach / unit / unit)).astype(np.float32) @ self.twice
        squared += of_nodes.astype(dtype)
        slack = rounding * (of_points + of_nodes.max())
        near = squared <= (_bound(squared, n_neighbors) + slack).astype(dtype)[:, None]
        if self.radii is not None:
            squared -= ((self.radii / unit) ** 2).astype(dtype)
            near |= squared <= (slack - of_points).astype(dtype)[:, None]

        crowded = np.flatnonzero(np.count_nonzero(near, axis=1) > _CROWD * n_neighbors)
        if len(crowded) and not double:
            near[crowded] = False
            i, j = nonzero_pairs(near)
            again, nodes = self._candidates(points[crowded], n_neighbors, double=True)
            return np.concatenate([i, crowded[again]]), np.concatenate([j, nodes])
        if len(crowded) and self.radii is None:
            # where so many nodes coincide, or are equally near to rounding, any of them will do
            few = np.argpartition(squared[crowded], n_neighbors - 1)[:, :n_neighbors]
            alike = ~(points[crowded, None] != self.points[few]).any(axis=(1, 2))
            alike |= slack[crowded] < _ALIKE * (squared[crowded[:, None], few].max(axis=1) + of_points[crowded])
            crowded, few = crowded[alike], few[alike]
            near[crowded] = False
            near[crowded[:, None], few] = True
        return nonzero_pairs(near)


def _bound(values: NDArray[np.floating], n: int) -> NDArray[np.floating]:
    """Upper bound on the n-th smallest value of each row: that of its group minima; exact if there are few groups."""
    n_groups = values.shape[1] // _GROUP
    if n_groups >= 4 * n:
        values = values[:, : n_groups * _GROUP].reshape(len(values), _GROUP, n_groups).min(axis=1)
    return np.partition(values, n - 1, axis=1)[:, n - 1]
