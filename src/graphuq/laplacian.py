"""A graph in; its Laplacian, whose eigenvectors are the modes of the prior, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csgraph, csr_array, diags_array

from graphuq._expect import LARGEST_SCALE, expect, expect_field
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, Matrix, MatrixLike
from graphuq.tall import row_blocks


@dataclass(frozen=True, eq=False)
class Laplacian:
    """A graph Laplacian L: symmetric, positive semi-definite, with one zero eigenvalue per connected component.

    Attributes:
        matrix: L, dense or CSR like the weights, shape (n_nodes, n_nodes).
        degrees: row sums of the weights, shape (n_nodes,).
        components: index of the connected component that each node belongs to, shape (n_nodes,).
        normalized: whether L is the symmetric normalized Laplacian (2.1) or ``D - A``.
    """

    matrix: Matrix
    degrees: Array
    components: NDArray[np.int32]
    normalized: bool

    def __repr__(self) -> str:
        kind = "normalized" if self.normalized else "D - A"
        return f"Laplacian({len(self.degrees):,} nodes, {kind}, {self.n_components:,} components)"

    @property
    def n_components(self) -> int:
        """Number of connected components of the graph."""
        return int(self.components.max()) + 1


def normalized(A: Graph | MatrixLike) -> Laplacian:
    """Symmetric normalized Laplacian ``L = I - D^{-1/2} A D^{-1/2}`` (2.1) of a graph or a weight matrix A."""
    graph = as_graph(A)
    return _laplacian(graph, np.ones(graph.n_nodes), 1 / np.sqrt(graph.degrees), normalized=True)


def unnormalized(A: Graph | MatrixLike) -> Laplacian:
    """Unnormalized Laplacian ``L = D - A`` of a graph or a weight matrix A."""
    graph = as_graph(A)
    if graph.degrees.max() > LARGEST_SCALE:
        raise ValueError(
            f"Weights of a node add up to {graph.degrees.max():.3g}, too much to square: divide all weights by the largest."
        )
    return _laplacian(graph, graph.degrees, np.ones(graph.n_nodes), normalized=False)


def connected_components(A: Graph | MatrixLike) -> tuple[int, NDArray[np.int32]]:
    """Number of connected components of a graph, and the component index of each node, shape (n_nodes,)."""
    weights = as_graph(A).weights
    if not isinstance(weights, np.ndarray):
        n_components, labels = csgraph.connected_components(weights, directed=False)
        return int(n_components), labels
    # a sparse copy would take more memory than the dense weights; a search row by row takes none
    labels = np.zeros(len(weights), dtype=np.int32)
    n_components, unvisited = 0, np.arange(len(weights))
    while unvisited.size:
        frontier, unvisited = [unvisited[0]], unvisited[1:]
        labels[frontier] = n_components
        while frontier and unvisited.size:
            adjacent = weights[frontier.pop(), unvisited] > 0
            labels[unvisited[adjacent]] = n_components
            frontier.extend(unvisited[adjacent])
            unvisited = unvisited[~adjacent]
        n_components += 1
    return n_components, labels


def dirichlet_energy(L: Laplacian, u: ArrayLike) -> np.float64 | Array:
    """Dirichlet energy ``J_0(u) = <u, L u> / 2`` (Sec. 2.1) of u (n_nodes,), or per column of (n_nodes, n_fields).

    For the normalized Laplacian ``J_0(D^{1/2} u) = 1/4 sum_ij a_ij (u_i - u_j)^2`` (2.2).
    """
    expect(L, Laplacian, "L", "a Laplacian, as laplacian.normalized(graph) makes")
    u = expect_field(u, L.degrees.size)
    return np.sum(u * (L.matrix @ u), axis=0) / 2


def _laplacian(graph: Graph, diagonal: Array, scale: Array, *, normalized: bool) -> Laplacian:
    """``diag(diagonal) - S A S`` with ``S = diag(scale)``."""
    A, n_nodes = graph.weights, graph.n_nodes
    matrix: Matrix
    if isinstance(A, np.ndarray):
        matrix = np.empty_like(A)
        for rows in row_blocks(n_nodes, n_nodes):  # s_i s_j is formed first, so the result is exactly symmetric
            np.multiply(A[rows], -np.outer(scale[rows], scale), out=matrix[rows])
        matrix[np.diag_indices(n_nodes)] += diagonal
    else:
        i, j = np.repeat(np.arange(n_nodes), np.diff(A.indptr)), A.indices
        scaled = csr_array((A.data * (scale[i] * scale[j]), j, A.indptr), shape=A.shape)
        matrix = csr_array(diags_array(diagonal) - scaled)
    return Laplacian(matrix, graph.degrees, connected_components(graph)[1], normalized)
