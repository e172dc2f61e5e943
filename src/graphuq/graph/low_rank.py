"""Features in; a graph whose weights are a product of thin factors, and are never formed, out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from graphuq._expect import RowError, expect_whole
from graphuq._recipe import recipe
from graphuq.graph.distances import row_blocks, squared_distances
from graphuq.graph.features import (
    Array,
    Features,
    Matrix,
    MatrixLike,
    check_features,
    check_new_features,
    prepare,
    squared_lengths,
)
from graphuq.graph.kernel import affinity, check_tau
from graphuq.graph.landmarks import kmeans_centers

_SINGULAR = 1e-10  # of the largest eigenvalue: smaller ones of the landmarks' weights are rounding
_ALL_PAIRS_UP_TO = 20_000  # nodes for which the sign of every weight is checked
_ROUNDING = 1e-12  # how far below zero the cosine of a right angle may come out


@dataclass(frozen=True, eq=False)
class LowRankGraph:
    """Weights ``A = F F^T`` between all nodes, self-weights included, kept as the thin factor F.

    Attributes:
        factor: F, shape (n_nodes, rank); sparse for cosines of sparse features.
        degrees: ``F (F^T 1)``, kept positive, shape (n_nodes,).
        feature_map: raw features of new points to their rows of F, shape (n_new, rank). The weights of
            new points to the nodes are ``feature_map(X_new) @ factor.T``.
    """

    factor: Any
    degrees: Array
    feature_map: Callable[[MatrixLike], Any]

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.factor.shape[0]


@recipe
def cosine(X: MatrixLike) -> LowRankGraph:
    """Cosine similarity between all nodes (Sec. 5.1, hyperspectral image).

    ``a_ij = <x_i, x_j> / (|x_i| |x_j|)``, so F is X with rows of length one: exact, and never of higher
    rank than there are features. No weight may be negative. That is certain for nonnegative features;
    otherwise every pair is checked up to 20,000 nodes, and the degrees beyond. Sparse features, such as counts of
    words, stay sparse.
    """
    X = check_features(X, sparse=True)
    unit = _UnitRows(X.shape[1])
    factor = unit(X)
    degrees = factor @ factor.sum(axis=0)
    if X.min() < 0:
        _check_not_negative(factor, degrees)
    return LowRankGraph(factor, degrees, unit)


@recipe
def nystrom(
    X: MatrixLike,
    *,
    tau: float,
    n_landmarks: int = 500,
    landmarks: Literal["kmeans", "random"] = "kmeans",
    n_components: int | None = None,
    seed: int = 0,
) -> LowRankGraph:
    """Gaussian weights of one scale between all nodes, through a few landmarks Z.

    ``exp(-|x - x'|^2 / (2 tau^2)) ~ k(x, Z) k(Z, Z)^{-1} k(Z, x')``, so ``F = k(X, Z) U S^{-1/2}`` with
    ``k(Z, Z) = U S U^T`` (Williams and Seeger 2001; Fowlkes et al. 2004). Memory is N times n_landmarks.
    A degree that comes out below 1, the weight of a node to itself, is set to 1, since the true one is
    never below that; the node then counts as having so much more weight to itself.

    Args:
        X: features, shape (n_nodes, n_features).
        tau: the distance at which nodes still count as similar.
        n_landmarks: how many; more are more accurate.
        landmarks: "kmeans" for centers of clusters, "random" for some of the nodes.
        n_components: project the features to this many principal components first.
        seed: of the choice of landmarks.
    """
    X = check_features(X, n_components=n_components)
    check_tau(tau)
    if not 1 <= expect_whole(n_landmarks, "n_landmarks", least=0) <= X.shape[0]:
        raise ValueError(
            f"n_landmarks must lie between 1 and {X.shape[0]}, the number of nodes, got {n_landmarks}."
        )
    if landmarks not in ("kmeans", "random"):
        raise ValueError(f'landmarks must be "kmeans" or "random", got {landmarks!r}.')
    features = prepare(X, n_components)
    points = features.points
    if landmarks == "kmeans":
        Z = kmeans_centers(points, n_landmarks, seed=seed)
    else:
        Z = points[np.random.default_rng(seed).choice(len(points), n_landmarks, replace=False)]
    S, U = eigh(affinity(squared_distances(Z, Z), tau, tau))
    kept = _SINGULAR * S[-1] < S
    to_factor = _Landmarks(replace(features, points=Z), tau, U[:, kept] / np.sqrt(S[kept]))
    factor = to_factor.of_points(points)
    degrees = np.maximum(factor @ factor.sum(axis=0), 1.0)
    return LowRankGraph(factor, degrees, to_factor)


@dataclass(frozen=True)
class _UnitRows:
    """Rows of features scaled to length one."""

    n_features: int

    def __call__(self, X_new: MatrixLike) -> Matrix:
        table = check_new_features(X_new, self.n_features, sparse=True)
        lengths = np.sqrt(squared_lengths(table))
        zero = np.flatnonzero(lengths == 0)
        if zero.size:
            raise RowError(
                f"{zero.size} rows of X are all zeros and have no direction, the first of them row {{}}. "
                "Cosine weights need rows that are not zero: leave those out.",
                zero[0],
            )
        return table / lengths[:, None] if isinstance(table, np.ndarray) else csr_array(table / lengths[:, None])


@dataclass(frozen=True, eq=False)
class _Landmarks:
    """``x -> k(x, Z) U S^{-1/2}``."""

    features: Features  # with the landmarks Z as points
    tau: float
    whitening: Array  # U S^{-1/2}, shape (n_landmarks, rank)

    def __call__(self, X_new: MatrixLike) -> Array:
        return self.of_points(self.features.project(X_new))

    def of_points(self, points: Array) -> Array:
        Z = self.features.points
        factor = np.empty((len(points), self.whitening.shape[1]))
        for rows in row_blocks(len(points), len(Z)):
            weights = affinity(squared_distances(points[rows], Z), self.tau, self.tau)
            factor[rows] = weights @ self.whitening
        return factor


def _check_not_negative(factor: Any, degrees: Array) -> None:
    """Refuse negative weights: every pair of a moderate number of nodes, else every degree."""
    n_nodes = factor.shape[0]
    if n_nodes <= _ALL_PAIRS_UP_TO:
        lowest = min((factor[rows] @ factor.T).min() for rows in row_blocks(n_nodes, n_nodes))
    else:
        lowest = degrees.min()
    if lowest < -_ROUNDING or degrees.min() <= 0:
        raise ValueError(
            "Some nodes are more than a right angle apart, so their cosine weights are negative. Use "
            "nonnegative features (shift them, say), or Gaussian weights."
        )
