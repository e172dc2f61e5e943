"""A graph with low-rank weights in; its whole spectrum out, without ever forming the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse import diags_array
from scipy.sparse.linalg import svds

from graphuq._expect import expect, expect_count, expect_whole
from graphuq.graph import LowRankGraph
from graphuq.graph.features import less_rank_one
from graphuq.large.passes import summed
from graphuq.spectrum.result import Array, Spectrum, signs
from graphuq.tall import Tall, spread, tall

_NOTHING = 1e-12  # sigma^2 below this is rounding: the eigenvalue is 1, like the rest
_SMALL = 1e-6  # sigma^2 above this gives vectors that are orthonormal to nine digits and need no second look
_ZERO = 1e-12  # an eigenvalue of L this small is zero, and stands for one more component
_NEGATIVE = -1e-8  # one below this is no rounding
_SPARSE_MODES = 300


def low_rank(
    graph: LowRankGraph, *, n_modes: int | None = None, at_most: int | None = None, progress: bool | None = None
) -> Spectrum:
    """The spectrum of ``L = I - S S^T`` with ``S = D^{-1/2} F``, for weights ``A = F F^T`` (2.1).

    The left singular vectors of S are eigenvectors of L with eigenvalues ``1 - sigma_j^2``. All other eigenvalues are
    exactly 1, which the result records in `rest` unless `n_modes` cuts some off.

    S is never formed: its singular vectors come from a Gram matrix, summed over blocks of rows in one pass. This
    squares sigma_j, but sigma_j^2 is all that is needed, accurate to the rounding of 1; a second pass makes the vectors
    of small sigma_j orthonormal. q_0 is ``D^{1/2} 1``, normalized, and is removed from S first. On a disconnected graph
    it is the first vector of the null space. For features in a store the eigenvectors are not stored: a row of them is
    a product with a row of features, see `Eigenrows`.

    Where `graph.nystrom` has raised a degree above its row sum, L belongs to weights with the difference as a
    self-weight: q_0 is exact, and the residuals show the effect on the other vectors.

    For a sparse F, which may have many columns, the leading singular vectors are found by products with F alone.

    Args:
        graph: the weights, from `graph.cosine` or `graph.nystrom`.
        n_modes: how many, q_0 included; by default all whose eigenvalue is not 1, for a sparse F up to 300.
        at_most: the largest number of modes to return by default.
        progress: whether to show a bar of blocks read, for features in a store.
    """
    expect(graph, LowRankGraph, "graph", "a low-rank graph, as graph.cosine(X) makes")
    F = graph.factor
    n_nodes, rank = F.shape
    if n_modes is not None:
        expect_count(n_modes, "n_modes", min(F.shape), "the rank of the weights")
    if not isinstance(F, np.ndarray | Tall):
        return _of_sparse(graph, n_modes or min(_SPARSE_MODES, n_nodes, rank))
    if at_most is not None:
        expect_whole(at_most, "at_most")
    rows = tall(F)
    # R = [sqrt(d), S - sqrt(d) a^T] has small columns beside the first: S less its part along q_0, nearly
    a = graph.total / (graph.total @ graph.total)
    products = _Products(graph.total, graph.least_degree, a)
    G, raised, raised_twice = summed(rows, products, shown=progress, desc="spectrum")
    length = np.sqrt(G[0, 0])
    without_q0 = np.vstack([-G[0, 1:] / G[0, 0], np.eye(rank)])  # R times this is orthogonal to q_0, exactly
    squares, U = eigh(without_q0.T @ G @ without_q0)
    kept = np.flatnonzero(squares > _NOTHING)[::-1]  # from the largest
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
    turn = np.hstack([np.eye(rank + 1)[:, :1] / length, without_q0 @ (U[:, kept] / np.sqrt(squares[kept]))])
    again = squares[kept].min(initial=1.0) < _SMALL
    if isinstance(F, Tall):
        X = F.source.given  # type: ignore[attr-defined]  # features, of which a graph in a store is made
        times = graph.feature_map.times
        if again:
            (gram,) = summed(
                X, partial(_gram, Eigenrows.of(graph, a, turn, times)), shown=progress, desc="orthonormal"
            )
            turn = turn @ solve_triangular(cholesky(gram), np.eye(n_modes))
        turn *= signs(Eigenrows.of(graph, a, turn, times)(X[spread(n_nodes)]))  # whose largest entries decide
        vectors = X.mapped(Eigenrows.of(graph, a, turn, times), n_modes)
    else:
        vectors = rows.made(Eigenrows.of(graph, a, turn))
        if again:
            vectors = vectors @ solve_triangular(cholesky(vectors.T @ vectors), np.eye(n_modes))
        vectors *= signs(vectors)
    # L R T = R T - S S^T R T - raised R T, and S = R A
    A = np.vstack([a, np.eye(rank)])
    off = turn * (1 - values) - A @ (A.T @ (G @ turn))
    squared = np.sum(off * (G @ off - 2 * raised @ turn), axis=0) + np.sum(turn * (raised_twice @ turn), axis=0)
    rest = 1.0 if n_modes == n_found else None
    residuals = np.sqrt(np.maximum(squared, 0.0))
    residuals[0] = 0.0  # L q_0 = 0 whatever the degrees are
    return Spectrum(values, vectors, residuals, graph.degrees, n_components, True, "low rank", rest)


@dataclass(frozen=True, eq=False)
class Eigenrows:
    """Rows of eigenvectors from rows of F, or of features: ``q(x) = sqrt(d) c + f(x)^T T / sqrt(d)``, d the degree of x.

    Attributes:
        times: what multiplies F, given as what it is handed, and a matrix.
        product: T, and ``F^T 1``, whose product with f(x) is the degree, shape (rank, n_modes + 1).
        constant: c, shape (n_modes,).
        least_degree: see `LowRankGraph`.
    """

    times: Callable[[Any, Array], Array]
    product: Array
    constant: Array
    least_degree: float

    @classmethod
    def of(cls, graph: LowRankGraph, a: Array, turn: Array, times: Any = np.matmul) -> Eigenrows:
        """From what turns ``[sqrt(d), f / sqrt(d) - sqrt(d) a]`` into eigenvectors."""
        product = np.column_stack([turn[1:], graph.total])
        return cls(times, product, turn[0] - a @ turn[1:], graph.least_degree)

    def cut(self, columns: slice) -> Eigenrows:
        """Some of the eigenvectors."""
        product = np.column_stack([self.product[:, :-1][:, columns], self.product[:, -1]])
        return replace(self, product=product, constant=self.constant[columns])

    def __call__(self, X: Any) -> Array:
        """The rows, shape (n, n_modes)."""
        found = self.times(X, self.product)
        degree = np.maximum(found[:, -1:], self.least_degree)
        root = np.sqrt(np.where(degree > 0, degree, np.inf))  # a point without weights has no value
        return np.where(degree > 0, root, 0.0) * self.constant + found[:, :-1] / root


@dataclass(frozen=True, eq=False)
class _Products:
    """``R^T R``, and the same over nodes whose degree was raised, by what share, once and twice."""

    total: Array
    least_degree: float
    a: Array

    def __call__(self, F: Array) -> tuple[Array, Array, Array]:
        own = F @ self.total[:, None]
        degree = np.maximum(own, self.least_degree)
        root = np.sqrt(degree)
        R = np.hstack([root, F / root - root * self.a])
        high = np.flatnonzero(own < degree)
        share, some = 1 - own[high] / degree[high], R[high]
        return R.T @ R, some.T @ (share * some), some.T @ (share**2 * some)


def _gram(function: Callable[[Array], Array], F: Array) -> tuple[Array]:
    """``V^T V`` of what is made of rows."""
    V = function(F)
    return (V.T @ V,)


def _of_sparse(graph: LowRankGraph, n_modes: int) -> Spectrum:
    """The leading modes: S less its part along q_0 is sparse less a matrix of rank one."""
    S = diags_array(1 / np.sqrt(graph.degrees)) @ graph.factor
    q0 = np.sqrt(graph.degrees) / np.linalg.norm(np.sqrt(graph.degrees))
    start = np.random.default_rng(0).standard_normal(min(S.shape))
    left, sigma, _ = svds(less_rank_one(S, q0, S.T @ q0), k=n_modes - 1, v0=start)
    values = np.concatenate([[0.0], 1 - np.square(sigma[::-1])])
    values[values < _ZERO] = 0.0
    vectors = np.column_stack([q0, left[:, ::-1]])
    vectors *= signs(vectors)
    residuals = np.linalg.norm(vectors * (1 - values) - S @ (S.T @ vectors), axis=0)
    n_components = int(np.sum(values == 0))
    return Spectrum(values, vectors, residuals, graph.degrees, n_components, True, "low rank")
