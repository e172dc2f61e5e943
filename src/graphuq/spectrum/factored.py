"""A graph with low-rank weights in; its whole spectrum, computed without forming the weights, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse import block_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import svds

from graphuq._expect import expect, expect_count, expect_whole
from graphuq._threads import eigen_threads
from graphuq.graph import LowRankGraph
from graphuq.graph.features import less_rank_one
from graphuq.large.passes import summed
from graphuq.spectrum.result import Array, Spectrum, signs
from graphuq.tall import Tall, spread, tall

_NOTHING = 1e-12  # sigma^2 below this is rounding: the eigenvalue is 1, like the rest
_SMALL = 1e-6  # sigma^2 above this gives vectors orthonormal to nine digits, with no second pass
_ZERO = 1e-12  # an eigenvalue of L this small is zero: one more connected component
_NEGATIVE = -1e-8  # an eigenvalue below this is not rounding
_SPARSE_MODES = 300  # default number of modes for a sparse F


def low_rank(
    graph: LowRankGraph, *, n_modes: int | None = None, at_most: int | None = None, progress: bool | None = None
) -> Spectrum:
    """Spectrum of ``L = I - S S^T`` with ``S = D^{-1/2} F``, for weights ``A = F F^T`` (2.1).

    The left singular vectors of S are eigenvectors of L with eigenvalues ``1 - sigma_j^2``. All other eigenvalues
    are exactly 1, which the result records in `rest` unless `n_modes` truncates the spectrum.

    S is never formed: its singular vectors come from a Gram matrix, summed over blocks of rows in one pass. This
    squares sigma_j, but only sigma_j^2 is needed, and it is accurate to the rounding of 1; a second pass
    orthonormalizes the vectors if some sigma_j is small. q_0 is ``D^{1/2} 1``, normalized, and is projected out of
    S first. On a disconnected graph it is the first vector of the null space. For features in a store the
    eigenvectors are not stored: each row is computed from a row of features, see `Eigenrows`.

    Where `graph.nystrom` has raised a degree above its row sum, L belongs to weights with the difference as a
    self-weight: q_0 is exact, and the residuals show the effect on the other vectors.

    For a sparse F, which may have many columns, a truncated SVD needs only products with F.

    Args:
        graph: the weights, from `graph.cosine` or `graph.nystrom`.
        n_modes: number of modes, q_0 included; by default all whose eigenvalue is not 1, for a sparse F up to 300.
        at_most: upper limit on the default number of modes.
        progress: whether to show a progress bar, for features in a store.
    """
    expect(graph, LowRankGraph, "graph", "a low-rank graph, as graph.cosine(X) makes")
    F = graph.factor
    n_nodes, rank = F.shape
    if n_modes is not None:
        expect_count(n_modes, "n_modes", min(F.shape), "the rank of the weights")
    if at_most is not None:
        expect_whole(at_most, "at_most")
    if not isinstance(F, np.ndarray | Tall):
        return _of_sparse(graph, n_modes or min(_SPARSE_MODES, n_nodes, rank, at_most or rank))
    rows = tall(F)
    # R = [sqrt(d), S - sqrt(d) a^T]: the columns after the first are nearly S with q_0 projected out
    a = graph.total / (graph.total @ graph.total)
    products = partial(_products, graph.total, graph.least_degree, a)
    G, raised, raised_twice = summed(rows, products, shown=progress, desc="spectrum")
    length = np.sqrt(G[0, 0])
    without_q0 = np.vstack([-G[0, 1:] / G[0, 0], np.eye(rank)])  # R @ without_q0 is exactly orthogonal to q_0
    with eigen_threads(rank):
        squares, U = eigh(without_q0.T @ G @ without_q0)
    kept = np.flatnonzero(squares > _NOTHING)[::-1]  # largest first
    n_found = 1 + kept.size
    n_modes = min(n_found, at_most or n_found) if n_modes is None else n_modes
    expect_count(n_modes, "n_modes", n_found, "the rank of the weights")
    values = np.concatenate([[0.0], 1 - squares[kept]])
    if values.min() < _NEGATIVE:
        raise ValueError(
            f"The Laplacian of these weights has the negative eigenvalue {values.min():.1e}: too few landmarks "
            "make some weights negative. Use more landmarks, or a larger tau."
        )
    values[values < _ZERO] = 0.0
    n_components = int(np.sum(values == 0))

    kept, values = kept[: n_modes - 1], values[:n_modes]
    coef = np.hstack([np.eye(rank + 1)[:, :1] / length, without_q0 @ (U[:, kept] / np.sqrt(squares[kept]))])
    orthonormalize = squares[kept].min(initial=1.0) < _SMALL
    if isinstance(F, Tall):
        X = F.source.given  # type: ignore[attr-defined]  # the features in the store
        times = graph.feature_map.times
        if orthonormalize:
            (gram,) = summed(
                X, partial(_gram, Eigenrows.of(graph, a, coef, times)), shown=progress, desc="orthonormal"
            )
            coef = coef @ solve_triangular(cholesky(gram), np.eye(n_modes))
        coef *= signs(Eigenrows.of(graph, a, coef, times)(X[spread(n_nodes)]))  # their largest entries decide
        vectors = X.mapped(Eigenrows.of(graph, a, coef, times), n_modes)
    else:
        vectors = rows.made(Eigenrows.of(graph, a, coef))
        if orthonormalize:
            vectors = vectors @ solve_triangular(cholesky(vectors.T @ vectors), np.eye(n_modes))
        vectors *= signs(vectors)
    # L R T = R T - S S^T R T - E R T and S = R A, with T the coefficients and E as in `_products`
    A = np.vstack([a, np.eye(rank)])
    defect = coef * (1 - values) - A @ (A.T @ (G @ coef))
    squared = np.sum(defect * (G @ defect - 2 * raised @ coef), axis=0)
    squared += np.sum(coef * (raised_twice @ coef), axis=0)
    rest = 1.0 if n_modes == n_found else None
    residuals = np.sqrt(np.maximum(squared, 0.0))
    residuals[0] = 0.0  # L q_0 = 0 whatever the degrees
    return Spectrum(values, vectors, residuals, graph.degrees, n_components, True, "low rank", rest)


@dataclass(frozen=True, eq=False)
class Eigenrows:
    """Rows of eigenvectors from rows f of F, or of features: ``q = sqrt(d) c + f^T T / sqrt(d)``, d the degree.

    Attributes:
        times: computes ``F M`` from its argument (rows of F, or of features) and a matrix M.
        product: T, and ``F^T 1`` as last column, whose product with f is the degree, shape (rank, n_modes + 1).
        constant: c, shape (n_modes,).
        least_degree: see `LowRankGraph`.
    """

    times: Callable[[Any, Array], Array]
    product: Array
    constant: Array
    least_degree: float

    @classmethod
    def of(cls, graph: LowRankGraph, a: Array, coef: Array, times: Any = np.matmul) -> Eigenrows:
        """From the coefficients that map rows ``[sqrt(d), f / sqrt(d) - sqrt(d) a]`` to rows of eigenvectors."""
        product = np.column_stack([coef[1:], graph.total])
        return cls(times, product, coef[0] - a @ coef[1:], graph.least_degree)

    def cut(self, columns: slice) -> Eigenrows:
        """The same for a slice of the eigenvectors."""
        product = np.column_stack([self.product[:, :-1][:, columns], self.product[:, -1]])
        return replace(self, product=product, constant=self.constant[columns])

    def __call__(self, X: Any) -> Array:
        """Rows of the eigenvectors, shape (n, n_modes)."""
        products = self.times(X, self.product)
        degree = np.maximum(products[:, -1:], self.least_degree)
        root = np.sqrt(np.where(degree > 0, degree, np.inf))  # a point without weights gets zeros
        return np.where(degree > 0, root, 0.0) * self.constant + products[:, :-1] / root


def _products(total: Array, least_degree: float, a: Array, F: Array) -> tuple[Array, Array, Array]:
    """``R^T R``, ``R^T E R`` and ``R^T E^2 R``; the diagonal matrix E is the share added to each raised degree."""
    row_sum = F @ total[:, None]
    degree = np.maximum(row_sum, least_degree)
    root = np.sqrt(degree)
    R = np.hstack([root, F / root - root * a])
    raised = np.flatnonzero(row_sum < degree)
    share, R_raised = 1 - row_sum[raised] / degree[raised], R[raised]
    return R.T @ R, R_raised.T @ (share * R_raised), R_raised.T @ (share**2 * R_raised)


def _gram(function: Callable[[Array], Array], F: Array) -> tuple[Array]:
    """``V^T V`` for the rows V that a function computes."""
    V = function(F)
    return (V.T @ V,)


def _of_sparse(graph: LowRankGraph, n_modes: int) -> Spectrum:
    """Leading modes for a sparse F: S with q_0 projected out is a sparse matrix minus one of rank one."""
    S = diags_array(1 / np.sqrt(graph.degrees)) @ graph.factor
    q0 = np.sqrt(graph.degrees) / np.linalg.norm(np.sqrt(graph.degrees))
    left: Any = np.empty((len(q0), 0))
    sigma: Any = np.empty(0)
    if n_modes > 1:
        start = np.random.default_rng(0).standard_normal(min(S.shape))
        left, sigma, _ = svds(less_rank_one(S, q0, S.T @ q0), k=n_modes - 1, v0=start)
    values = np.concatenate([[0.0], 1 - np.square(sigma[::-1])])
    values[values < _ZERO] = 0.0
    vectors = np.column_stack([q0, left[:, ::-1]])
    vectors *= signs(vectors)
    residuals = np.linalg.norm(vectors * (1 - values) - S @ (S.T @ vectors), axis=0)
    n_components = max(int(np.sum(values == 0)), _n_linked(graph.factor))
    return Spectrum(values, vectors, residuals, graph.degrees, n_components, True, "low rank")


def _n_linked(F: Any) -> int:
    """Number of groups of nodes without a common column of F: the components, unless products of signs cancel."""
    links = block_array([[None, F != 0], [(F != 0).T, None]], format="csr")
    return np.unique(connected_components(links, directed=False)[1][: F.shape[0]]).size
