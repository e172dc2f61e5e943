"""A weight matrix in; a validated, symmetric graph, to which new points can be connected, out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from graphuq._expect import RowError
from graphuq.graph.distances import Search, squared_distances
from graphuq.graph.features import Array, Features, Matrix, MatrixLike, to_float
from graphuq.graph.kernel import Kernel
from graphuq.graph.low_rank import LowRankGraph
from graphuq.tall import row_blocks

_SAME = 0.1  # a new point within this fraction of a node's scale is treated as nearly that node
_LEAST_DEGREE = 1e-290  # below this, products with 1 / sqrt(degree) overflow
_ASYMMETRY = 1e-8  # allowed, relative to the largest weight: above rounding, below any intended asymmetry


@dataclass(frozen=True, eq=False)
class Graph:
    """Symmetric, nonnegative weights A between nodes; every node has a positive degree.

    Attributes:
        weights: A, dense or CSR, shape (n_nodes, n_nodes).
        features: the nodes as points, or None if the weights were given.
        kernel: the function from distances to weights, or None if the weights were given.
        degrees: ``d_i = sum_j a_ij``, all positive, shape (n_nodes,).
    """

    weights: Matrix
    features: Features | None = None
    kernel: Kernel | None = None
    degrees: Array = field(init=False)

    def __post_init__(self) -> None:
        degrees = np.asarray(self.weights.sum(axis=1))
        isolated = np.flatnonzero(~(degrees > 0))
        if isolated.size:
            raise RowError(
                f"{isolated.size} of {degrees.size} nodes are isolated: all their weights are zero. The first is "
                "node {}. If it is so far from all others, look whether its numbers are mistyped or codes for what is "
                'missing, or compare features in robust units (scale="robust"); else use a wider kernel or self-tuning '
                "weights, give a node of a graph of your own a loop, or leave those nodes out.",
                isolated[0],
            )
        if degrees.min() < _LEAST_DEGREE:
            raise ValueError(
                f"The weights of node {degrees.argmin()} add up to {degrees.min():.3g}, too little to divide by: "
                "divide all weights by the largest."
            )
        object.__setattr__(self, "degrees", degrees)

    def __repr__(self) -> str:
        joined = f"{self.weights.nnz:,} sparse weights" if issparse(self.weights) else "dense weights"
        return f"Graph({self.n_nodes:,} nodes, {joined})"

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.degrees.size

    def to_new(self, X_new: MatrixLike) -> Matrix:
        """Weights ``a(x, x_i)`` of new points to the nodes, by the graph's own kernel, shape (n_new, n_nodes).

        A new point that coincides with a node gets that node's row of A. For any other point, the K-th neighbor is
        searched among the nodes. A row of zeros means that no node is near.
        """
        return self.place(X_new).weights

    def place(self, X_new: MatrixLike) -> Placement:
        """Weights of new points to the nodes, the nearest node of each, and how nearly the two coincide."""
        if self.features is None or self.kernel is None:
            raise TypeError(
                "This graph was made from weights and knows no features: give the weights of the new points "
                "to the nodes directly."
            )
        points = self.features.project(X_new)
        weights: Matrix
        if self.kernel.n_neighbors is None or self._search is None:
            weights, nearest, squared = self._among_all(points, self.kernel)
        else:
            pairs = self._search.near(points, self.kernel.n_neighbors)
            weights = self.kernel.of_pairs(pairs, (len(points), self.n_nodes))
            nearest, squared = pairs.nodes[pairs.first], pairs.squared[pairs.first]
        tau = np.broadcast_to(self.kernel.tau, self.n_nodes)[nearest]
        share = np.exp(-np.square(np.sqrt(squared) / (_SAME * tau)))
        return Placement(self._as_nodes(weights, nearest, squared == 0), nearest, share)

    @cached_property
    def _search(self) -> Search | None:
        """Neighbor search among the nodes, for a nearest-neighbor graph; otherwise None."""
        if self.features is None or self.kernel is None or self.kernel.radii is None:
            return None
        return Search.of(self.features.points, self.kernel.radii)

    def _among_all(self, points: Array, kernel: Kernel) -> tuple[Array, NDArray[np.int64], Array]:
        """Weights of points to all nodes, the nearest node of each point, and its squared distance."""
        assert self.features is not None
        blocks: list[Any] = []
        nearest, least = np.empty(len(points), dtype=np.int64), np.empty(len(points))
        for rows in row_blocks(len(points), self.n_nodes):
            squared = squared_distances(points[rows], self.features.points)
            nearest[rows], least[rows] = squared.argmin(axis=1), squared.min(axis=1)
            blocks.append(kernel(squared))
        return np.concatenate(blocks), nearest, least

    def _as_nodes(self, weights: Matrix, nodes: NDArray[np.int64], same: NDArray[np.bool_]) -> Matrix:
        """The weights, with rows of points that coincide with a node replaced by that node's row of A."""
        if not same.any():
            return weights
        own: Any = self.weights[nodes[same]]
        if isinstance(weights, np.ndarray):
            weights[same] = own
            return weights
        row = np.arange(len(nodes))
        row[same] = len(nodes) + np.arange(np.count_nonzero(same))
        return csr_array(vstack([weights, own], format="csr")[row])


class Placement(NamedTuple):
    """New points placed among the nodes.

        share = exp(-(d / (0.1 tau_i))^2),

    with d the distance to the nearest node i and tau_i the scale of the kernel there, says how nearly the point is
    that node: 1 if they coincide, nearly 1 if they differ by rounding, negligible for a mere neighbor.
    """

    weights: Matrix  # to the nodes, (n_new, n_nodes)
    nearest: NDArray[np.int64]  # nearest node, (n_new,)
    share: Array  # (n_new,)


def precomputed(A: MatrixLike) -> Graph:
    """Graph with the given weight matrix A, dense or sparse; self-weights are kept.

    Asymmetry of A within rounding is removed by ``(A + A^T) / 2``.
    """
    weights = to_float(A, "Weights")
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise ValueError(f"Weights must be a square matrix, got the shape {weights.shape}.")
    if weights.shape[0] < 2:
        raise ValueError("A graph needs at least two nodes.")
    entries = weights if isinstance(weights, np.ndarray) else weights.data
    if not np.isfinite(entries).all():
        raise ValueError("Weights must be finite, but some are NaN or infinite.")
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise ValueError("Weights are so large that their sum is infinite: divide them all by the largest.")
    if entries.min(initial=0.0) < 0:
        raise ValueError(
            f"Weights must not be negative, but the smallest is {entries.min():.3g}. Use similarities, not "
            "distances or correlations; clip values below zero if they are rounding errors."
        )
    if isinstance(weights, np.ndarray):
        difference = max(np.abs(weights[rows] - weights[:, rows].T).max() for rows in row_blocks(*weights.shape))
    else:
        difference = abs(weights - weights.T).max()
    if difference > _ASYMMETRY * entries.max(initial=0.0):
        raise ValueError(
            f"Weights must be symmetric, but a_ij and a_ji differ by up to {difference:.3g}. "
            "Pass (A + A.T) / 2, or the larger of the two."
        )
    if isinstance(weights, np.ndarray):
        weights = weights.copy()
        symmetrize(weights)
    else:
        weights = csr_array((weights + weights.T) / 2)
        weights.eliminate_zeros()
    return Graph(weights)


def as_graph(A: Graph | LowRankGraph | MatrixLike) -> Graph:
    """Return a graph unchanged, and a weight matrix as a graph."""
    if isinstance(A, LowRankGraph):
        raise TypeError(
            "The weights of a low-rank graph are never formed. Its eigenpairs come from its factor: "
            "use spectrum.low_rank."
        )
    return A if isinstance(A, Graph) else precomputed(A)


def symmetrize(A: Array) -> None:
    """Replace A by ``(A + A^T) / 2``, in place and in blocks."""
    for rows in row_blocks(*A.shape):
        block = (A[rows, rows.start :] + A[rows.start :, rows].T) / 2
        A[rows, rows.start :] = block
        A[rows.start :, rows] = block.T
