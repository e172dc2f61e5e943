"""Nodes with features and new points in; the nodes near each point, and how far they are, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq.graph.distances import Indices, nonzero_pairs, pair_squared_distances
from graphuq.graph.features import Array
from graphuq.tall import row_blocks

# A squared distance in single precision is wrong by less than this share of the squared lengths of its points.
_ROUNDING = 1e-5
# The least of so many nodes stands for them while the K-th nearest is bounded from above.
_GROUP = 64


class Pairs(NamedTuple):
    """New points and nodes near them, ordered by point and then by distance."""

    points: Indices
    nodes: Indices
    squared: Array  # distances
    first: Indices  # where the pairs of each point begin, (n_points + 1,)

    def nth(self, n: int) -> Indices:
        """The pair of each point and its n-th nearest node, from 0."""
        return self.first[:-1] + n


@dataclass(frozen=True, eq=False)
class Search:
    """All nodes are compared with a point in single precision, and those that may be near once more in double.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        twice: -2 times these, transposed, in single precision.
        lengths: their squared lengths.
        radii: how far each node reaches, shape (n_nodes,).
    """

    points: Array
    twice: NDArray[np.float32]
    lengths: Array
    radii: Array

    @classmethod
    def of(cls, points: Array, radii: Array) -> Search:
        """Of nodes that reach so far."""
        twice = np.ascontiguousarray((-2 * points).T, dtype=np.float32)
        return cls(points, twice, np.einsum("ij,ij->i", points, points), radii)

    def near(self, points: Array, n_neighbors: int) -> Pairs:
        """The K nearest nodes of each point at least, and all nodes that reach it; exact."""
        parts = [self._near(points[rows], n_neighbors) for rows in row_blocks(len(points), len(self.points) // 2)]
        counts = np.cumsum([0] + [part.first.size - 1 for part in parts])
        starts = np.cumsum([0] + [part.points.size for part in parts])
        return Pairs(
            np.concatenate([part.points + count for part, count in zip(parts, counts[:-1], strict=True)]),
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.squared for part in parts]),
            np.concatenate([*(p.first[:-1] + s for p, s in zip(parts, starts[:-1], strict=True)), starts[-1:]]),
        )

    def _near(self, points: Array, n_neighbors: int) -> Pairs:
        own = np.einsum("ij,ij->i", points, points)
        squared = points.astype(np.float32) @ self.twice  # |x - y|^2 - |x|^2 to rounding
        squared += self.lengths.astype(np.float32)
        slack = _ROUNDING * (own + self.lengths.max())
        kth = _bound(squared, n_neighbors) + slack
        near = squared <= kth.astype(np.float32)[:, None]
        squared -= (self.radii**2).astype(np.float32)
        near |= squared <= (slack - own).astype(np.float32)[:, None]
        i, j = nonzero_pairs(near)
        exact = pair_squared_distances(points, i, self.points, j)
        order = np.lexsort((exact, i))
        return Pairs(i[order], j[order], exact[order], np.searchsorted(i, np.arange(len(points) + 1)))


def _bound(values: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """At least the n-th smallest of each row: the n-th smallest of the least of groups, or itself where those are few."""
    n_groups = values.shape[1] // _GROUP
    if n_groups >= 4 * n:
        values = values[:, : n_groups * _GROUP].reshape(len(values), _GROUP, n_groups).min(axis=1)
    return np.partition(values, n - 1, axis=1)[:, n - 1]
