"""A graph with low-rank weights in; its whole spectrum out, without ever forming the weights."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, svds

from graphuq._expect import expect
from graphuq.graph import LowRankGraph
from graphuq.graph.distances import row_blocks
from graphuq.spectrum.convention import Array, check_n_modes, fix_signs
from graphuq.spectrum.result import Spectrum

_NOTHING = 1e-12  # sigma^2 below this is rounding: the eigenvalue is 1, like the rest
_ZERO = 1e-12  # an eigenvalue of L this small is zero, and stands for one more component
_NEGATIVE = -1e-8  # one below this is no rounding
_SPARSE_MODES = 300


def low_rank(graph: LowRankGraph, *, n_modes: int | None = None) -> Spectrum:
    """The spectrum of ``L = I - S S^T`` with ``S = D^{-1/2} F``, for weights ``A = F F^T`` (2.1).

    The left singular vectors of S are eigenvectors of L with eigenvalues ``1 - sigma_j^2``. All other
    eigenvalues are exactly 1, which the result says in `rest` unless `n_modes` cuts some off.

    S is never formed: its singular vectors come from the Gram matrix ``S^T S``, summed over blocks of
    rows. That squares sigma_j, but sigma_j^2 is what is wanted, to rounding of 1; a second pass makes
    the vectors of small sigma_j orthonormal. q_0 is ``D^{1/2} 1``, normalized, and is removed from S
    first. On a disconnected graph it is the first vector of the null space.

    Where `graph.nystrom` has raised a degree above its row sum, L is that of weights with the
    difference as a self-weight: q_0 is exact, and the residuals tell what that does to the others.

    Of a sparse F, which may have many columns, the leading singular vectors are found by products with it alone.

    Args:
        graph: the weights, from `graph.cosine` or `graph.nystrom`.
        n_modes: how many, q_0 included; by default all whose eigenvalue is not 1, of a sparse F up to 300.
    """
    expect(graph, LowRankGraph, "graph", "a low-rank graph, as graph.cosine(X) makes")
    F, root = graph.factor, np.sqrt(graph.degrees)[:, None]
    n_nodes, rank = F.shape
    if n_modes is not None:
        check_n_modes(n_modes, min(F.shape), "the rank of the weights")
    length = np.linalg.norm(root)
    if not isinstance(F, np.ndarray):
        return _of_sparse(graph, n_modes or min(_SPARSE_MODES, n_nodes, rank))
    overlap = F.sum(axis=0) / length  # S^T q_0
    blocks = list(row_blocks(n_nodes, rank))

    def without_q_0(rows: slice) -> Array:
        return F[rows] / root[rows] - root[rows] / length * overlap

    squares, U = eigh(sum((S.T @ S for S in map(without_q_0, blocks)), start=np.zeros((rank, rank))))
    kept = np.flatnonzero(squares > _NOTHING)[::-1]  # from the largest
    n_found = 1 + kept.size
    n_modes = n_found if n_modes is None else n_modes
    check_n_modes(n_modes, n_found, "the rank of the weights")
    values = np.concatenate([[0.0], 1 - squares[kept]])
    if values.min() < _NEGATIVE:
        raise ValueError(
            f"The Laplacian of these weights has the negative eigenvalue {values.min():.1e}: too few landmarks "
            "make some weights negative. Use more landmarks, or a larger tau."
        )
    values[values < _ZERO] = 0.0
    n_components = int(np.sum(values == 0))

    kept, values = kept[: n_modes - 1], values[:n_modes]
    to_vectors = U[:, kept] / np.sqrt(squares[kept])
    vectors = np.empty((n_nodes, n_modes))
    for rows in blocks:
        vectors[rows, :1] = root[rows] / length
        vectors[rows, 1:] = without_q_0(rows) @ to_vectors
    to_orthonormal = solve_triangular(cholesky(vectors.T @ vectors), np.eye(n_modes))
    for rows in blocks:
        vectors[rows] = vectors[rows] @ to_orthonormal
    return _spectrum(graph, values, vectors, n_components, rest=1.0 if n_modes == n_found else None)


def _of_sparse(graph: LowRankGraph, n_modes: int) -> Spectrum:
    """The leading modes: S less its part along q_0 is sparse less a matrix of rank one."""
    S = diags_array(1 / np.sqrt(graph.degrees)) @ graph.factor
    q0 = np.sqrt(graph.degrees) / np.linalg.norm(np.sqrt(graph.degrees))
    overlap = S.T @ q0

    def forward(V: Array) -> Array:
        return np.asarray(S @ V - np.multiply.outer(q0, overlap @ V))

    def backward(U: Array) -> Array:
        return np.asarray(S.T @ U - np.multiply.outer(overlap, q0 @ U))

    products = {"matvec": forward, "rmatvec": backward, "matmat": forward, "rmatmat": backward}
    operator = LinearOperator(S.shape, dtype=np.float64, **products)
    start = np.random.default_rng(0).standard_normal(min(S.shape))
    left, sigma, _ = svds(operator, k=n_modes - 1, v0=start)
    values = np.concatenate([[0.0], 1 - np.square(sigma[::-1])])
    values[values < _ZERO] = 0.0
    vectors = np.column_stack([q0, left[:, ::-1]])
    return _spectrum(graph, values, vectors, int(np.sum(values == 0)), rest=None)


def _spectrum(
    graph: LowRankGraph, values: Array, vectors: Array, n_components: int, *, rest: float | None
) -> Spectrum:
    fix_signs(vectors)
    residuals = _residuals(graph, values, vectors)
    return Spectrum(values, vectors, residuals, graph.degrees, n_components, True, "low rank", rest)


def _residuals(graph: LowRankGraph, values: Array, vectors: Array) -> Array:
    """``|L q_j - lambda_j q_j|``, in blocks of rows."""
    F, degrees = graph.factor, graph.degrees[:, None]
    total, inner = F.sum(axis=0)[:, None], np.zeros((F.shape[1], values.size))
    blocks = list(row_blocks(*F.shape))
    for rows in blocks:
        inner += F[rows].T @ (vectors[rows] / np.sqrt(degrees[rows]))
    squared = np.zeros(values.size)
    for rows in blocks:
        raised = 1 - F[rows] @ total / degrees[rows]
        residual = vectors[rows] * (1 - values - raised) - F[rows] @ inner / np.sqrt(degrees[rows])
        squared += np.einsum("ij,ij->j", residual, residual)
    return np.sqrt(squared)
