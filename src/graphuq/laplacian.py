"""A graph in; its Laplacian, whose eigenvectors are the modes of the prior, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csgraph, csr_array, diags_array

from graphuq._expect import expect, expect_field
from graphuq.graph import Graph, as_graph
from graphuq.graph.features import Array, Matrix, MatrixLike
from graphuq.tall import row_blocks


@dataclass(frozen=True, eq=False)
class Laplacian:
    """A symmetric positive semi-definite matrix L with one zero eigenvalue for each component of the graph.

    Attributes:
        matrix: L, dense or CSR like the weights it was made from, shape (n_nodes, n_nodes).
        degrees: row sums of the weights, shape (n_nodes,).
        components: the connected component of the graph that each node is in, shape (n_nodes,).
        is_normalized: whether L is the symmetric normalized Laplacian (2.1) or ``D - A``.
    """

    matrix: Matrix
    degrees: Array
    components: NDArray[np.int32]
    is_normalized: bool

    @property
    def n_components(self) -> int:
        """Connected components of the graph."""
        return int(self.components.max()) + 1


def normalized(A: Graph | MatrixLike) -> Laplacian:
    """The symmetric normalized Laplacian ``L = I - D^{-1/2} A D^{-1/2}`` (2.1) of a graph, or of weights A."""
    graph = as_graph(A)
    return _laplacian(graph, np.ones(graph.n_nodes), 1 / np.sqrt(graph.degrees), is_normalized=True)


def unnormalized(A: Graph | MatrixLike) -> Laplacian:
    """The Laplacian ``L = D - A`` of a graph, or of weights A."""
    graph = as_graph(A)
    return _laplacian(graph, graph.degrees, np.ones(graph.n_nodes), is_normalized=False)


def connected_components(A: Graph | MatrixLike) -> tuple[int, NDArray[np.int32]]:
    """How many parts a graph has with no weight between them, and the part of each node, shape (n_nodes,)."""
    weights = as_graph(A).weights
    if not isinstance(weights, np.ndarray):
        n_components, labels = csgraph.connected_components(weights, directed=False)
        return int(n_components), labels
    # a copy in sparse form would take more memory than the weights; a search by rows takes none
    labels = np.zeros(len(weights), dtype=np.int32)
    n_components, left = 0, np.arange(len(weights))
    while left.size:
        reached, left = [left[0]], left[1:]
        labels[reached] = n_components
        while reached and left.size:
            joined = weights[reached.pop(), left] > 0
            labels[left[joined]] = n_components
            reached.extend(left[joined])
            left = left[~joined]
        n_components += 1
    return n_components, labels


def dirichlet_energy(L: Laplacian, u: ArrayLike) -> np.float64 | Array:
    """``J_0(u) = <u, L u> / 2`` (Sec. 2.1), of one field (n_nodes,) or of each column of (n_nodes, n_fields).

    For the normalized Laplacian ``J_0(D^{1/2} u) = 1/4 sum_ij a_ij (u_i - u_j)^2`` (2.2).
    """
    expect(L, Laplacian, "L", "a Laplacian, as laplacian.normalized(graph) makes")
    u = expect_field(u, L.degrees.size)
    return np.sum(u * (L.matrix @ u), axis=0) / 2


def _laplacian(graph: Graph, diagonal: Array, scale: Array, *, is_normalized: bool) -> Laplacian:
    """``diag(diagonal) - S A S`` with S the diagonal matrix of scales."""
    A, n_nodes = graph.weights, graph.n_nodes
    matrix: Matrix
    if isinstance(A, np.ndarray):
        matrix = np.empty_like(A)
        for rows in row_blocks(n_nodes, n_nodes):  # s_i s_j first: it is exactly symmetric
            np.multiply(A[rows], -np.outer(scale[rows], scale), out=matrix[rows])
        matrix[np.diag_indices(n_nodes)] += diagonal
    else:
        i, j = np.repeat(np.arange(n_nodes), np.diff(A.indptr)), A.indices
        scaled = csr_array((A.data * (scale[i] * scale[j]), j, A.indptr), shape=A.shape)
        matrix = csr_array(diags_array(diagonal) - scaled)
    return Laplacian(matrix, graph.degrees, connected_components(graph)[1], is_normalized)
