"""Squared distances to the nodes of a graph in; weights (5.1) out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from graphuq.graph.distances import Pairs
from graphuq.graph.features import Array

# Tolerance that keeps a point exactly as far away as the K-th neighbor from being lost to rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Kernel:
    """Kernel ``a(x, x_i) = exp(-|x - x_i|^2 / (2 tau(x) tau_i))`` (5.1), and which pairs it joins.

    Attributes:
        tau: scale of each node, shape (n_nodes,), if self-tuning; otherwise one number for all points.
        n_neighbors: K, if the K-th nearest node of a point sets its scale or limits its edges; otherwise None.
        radii: distance of each node to its K-th neighbor, shape (n_nodes,), if only neighbors are joined.
    """

    tau: Array | float
    n_neighbors: int | None = None
    radii: Array | None = None

    def __call__(self, squared: Array) -> Array:
        """Weights of points to all nodes, from their squared distances, both (n_points, n_nodes)."""
        if self.n_neighbors is None or isinstance(self.tau, float):
            return affinity(squared, self.tau, self.tau)
        return affinity(squared, kth_distance(squared, self.n_neighbors)[:, None], self.tau)

    def of_pairs(self, pairs: Pairs, shape: tuple[int, int]) -> csr_array:
        """Sparse weights of points in a nearest-neighbor graph, from candidate pairs, shape (n_points, n_nodes).

        A point is joined to its K nearest nodes, and to nodes no farther away than their own K-th neighbor.
        """
        assert self.n_neighbors is not None
        assert self.radii is not None
        i, j, squared = pairs.points, pairs.nodes, pairs.squared
        kth = np.sqrt(squared[pairs.first + self.n_neighbors - 1])
        kth[kth == 0] = 1.0  # the point coincides with a node and will get that node's weights
        joined = squared <= (1 + _ROUNDING) * np.maximum(kth[i], self.radii[j]) ** 2
        i, j, squared = i[joined], j[joined], squared[joined]
        tau, tau_nodes = (self.tau, self.tau) if isinstance(self.tau, float) else (kth[i], self.tau[j])
        return csr_array((affinity(squared, tau, tau_nodes), (i, j)), shape=shape)


def affinity(squared: Array, tau: Array | float, tau_nodes: Array | float) -> Array:
    """Weights ``exp(-d^2 / (2 tau_i tau_j))`` (5.1) from squared distances; coincident points get weight 1."""
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(squared / (-2 * (tau * tau_nodes))))


def kth_distance(squared: Array, n_neighbors: int) -> Array:
    """Distance of each point to its K-th nearest node, from squared distances (n_points, n_nodes).

    Never zero: where K or more nodes coincide with a point, this is the distance to the nearest node
    that does not coincide.
    """
    kth = np.partition(squared, n_neighbors - 1, axis=1)[:, n_neighbors - 1]
    zero = np.flatnonzero(kth == 0)
    if zero.size:
        apart = squared[zero]
        kth[zero] = np.min(apart, axis=1, where=apart > 0, initial=np.inf)
    if np.isinf(kth).any():
        raise ValueError(
            "All points coincide, so there is no distance to measure weights by (those below 1e-162 have no square). "
            "Give features that differ between rows."
        )
    return np.sqrt(kth)
