"""Features in; a graph whose weight matrix is kept as a product of thin factors, and never formed, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from graphuq._expect import (
    RowError,
    SettingError,
    expect_count,
    expect_flag,
    expect_scale,
    expect_seed,
)
from graphuq._recipe import recipe
from graphuq._threads import eigen_threads
from graphuq.graph.distances import squared_distances
from graphuq.graph.features import (
    Array,
    Features,
    MatrixLike,
    check_features,
    check_new_features,
    prepare,
    squared_lengths,
)
from graphuq.graph.kernel import affinity
from graphuq.graph.landmarks import centers_of_sample, kmeans_sample
from graphuq.large.passes import summed
from graphuq.tall import Tall, row_blocks

_SINGULAR = 1e-10  # eigenvalues of k(Z, Z) below this fraction of the largest are rounding
_ALL_PAIRS_UP_TO = 20_000  # number of nodes up to which the sign of every weight is checked
_ROUNDING = 1e-12  # how far below zero rounding may put the cosine of a right angle


class FeatureMap(Protocol):
    """Map from raw features to rows of F, with products that need not form these rows."""

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        ...

    def __call__(self, X_new: MatrixLike) -> Any:
        """Rows of F, shape (n_new, rank)."""
        ...

    def times(self, X: Any, M: Array) -> Any:
        """Product ``F M``."""
        ...

    def total(self, X: Any) -> Array:
        """Column sums ``F^T 1``."""
        ...


@dataclass(frozen=True, eq=False)
class LowRankGraph:
    """Weights ``A = F F^T`` between all pairs of nodes, self-weights included, kept as the thin factor F.

    Attributes:
        factor: F, shape (n_nodes, rank); sparse for cosines of sparse features, a `Tall` for features in a store.
        total: column sums ``F^T 1``, shape (rank,).
        feature_map: maps raw features of new points to their rows of F, shape (n_new, rank). The weights of
            new points to the nodes are ``feature_map(X_new) @ factor.T``.
        least_degree: lower bound on every degree: the self-weight of a node, if known.
    """

    factor: Any
    total: Array
    feature_map: FeatureMap
    least_degree: float = 0.0

    def __repr__(self) -> str:
        return f"LowRankGraph({self.n_nodes:,} nodes, weights of rank {self.factor.shape[1]:,})"

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.factor.shape[0]

    @cached_property
    def degrees(self) -> Any:
        """``F (F^T 1)``, at least `least_degree`, (n_nodes,); for features in a store a `Tall` of one column."""
        if isinstance(self.factor, Tall):
            return self.factor.mapped(self.degrees_of, 1)
        return np.maximum(self.factor @ self.total, self.least_degree)

    def degrees_of(self, F: Array) -> Array:
        """Degrees of the nodes or new points with these rows of F, shape (n, 1)."""
        return np.maximum(F @ self.total[:, None], self.least_degree)


@recipe
def cosine(X: MatrixLike | Tall, *, progress: bool | None = None) -> LowRankGraph:
    """Cosine similarity between all pairs of nodes (Sec. 5.1, hyperspectral image).

    ``a_ij = <x_i, x_j> / (|x_i| |x_j|)``, so F is X with rows of length one. This is exact, and the rank is at
    most the number of features. No weight may be negative. Nonnegative features guarantee that; otherwise all
    pairs are checked up to 20,000 nodes, and beyond that only the degrees. Sparse features, such as word counts,
    stay sparse; those of a `Tall` stay in their store and are read once.

    Args:
        X: features, shape (n_nodes, n_features).
        progress: whether to show a progress bar over the blocks read.
    """
    if isinstance(X, Tall):
        unit = UnitRows(X.shape[1])
        total, negative = summed(X, partial(_total_and_sign, unit), shown=progress, desc="cosines")
        graph = LowRankGraph(X.mapped(unit, unit.rank), total, unit)
    else:
        X = check_features(X, sparse=True)
        unit = UnitRows(X.shape[1])
        factor = unit(X)
        negative = X.min() < 0
        graph = LowRankGraph(factor, np.asarray(factor.sum(axis=0)), unit)
    if negative:
        _check_not_negative(graph)
    return graph


@recipe
def nystrom(
    X: MatrixLike | Tall,
    *,
    tau: float,
    n_landmarks: int = 500,
    n_components: int | None = None,
    robust: bool = False,
    seed: int = 0,
    progress: bool | None = None,
) -> LowRankGraph:
    """Gaussian weights with a single length scale between all nodes: the Nystrom approximation with landmarks Z.

    ``exp(-|x - x'|^2 / (2 tau^2)) ~ k(x, Z) k(Z, Z)^{-1} k(Z, x')``, so ``F = k(X, Z) U S^{-1/2}`` with
    ``k(Z, Z) = U S U^T`` (Williams and Seeger 2001; Fowlkes et al. 2004). Memory is N times n_landmarks.
    An approximate degree below 1, the self-weight of a node, is raised to 1, since the true degree is never less;
    the difference counts as additional self-weight.

    Args:
        X: features, shape (n_nodes, n_features).
        tau: length scale: the distance at which nodes still count as similar; `width` of `GraphClassifier`.
        n_landmarks: number of landmarks, centers of k-means; more are more accurate.
        n_components, robust: see `knn`.
        seed: seed for choosing the landmarks.
        progress: whether to show a progress bar, for features in a store, which are read once.
    """
    if isinstance(X, Tall):
        for name, given in (("n_components", n_components is not None), ("robust", robust)):
            if given:
                raise SettingError(name, "is not for a Nystrom graph of features in a store: leave it out.")
    else:
        X = check_features(X, n_components=n_components)
    tau = expect_scale(tau, "tau")
    n_landmarks = expect_count(n_landmarks, "n_landmarks", X.shape[0], "the number of nodes")
    expect_flag(robust, "robust")
    seed = expect_seed(seed)
    chosen = kmeans_sample(X.shape[0], n_landmarks, seed=seed)
    if isinstance(X, Tall):
        try:
            features = prepare(check_features(X.rows(chosen)), None)
        except RowError as error:
            raise RowError(error.template, *(int(chosen[row]) for row in error.rows)) from None
        Z = features.points
    else:
        features = prepare(X, n_components, robust=robust)
        Z = features.points[chosen]
    Z = centers_of_sample(Z, n_landmarks, seed=seed)
    with eigen_threads(len(Z)):
        S, U = eigh(affinity(squared_distances(Z, Z), tau, tau))
    kept = _SINGULAR * S[-1] < S
    to_factor = Landmarks(replace(features, points=Z), tau, U[:, kept] / np.sqrt(S[kept]))
    if isinstance(X, Tall):
        total, _ = summed(X, partial(_total_and_sign, to_factor), shown=progress, desc="landmarks")
        return LowRankGraph(X.mapped(to_factor, to_factor.rank), total, to_factor, 1.0)
    factor = to_factor.of_points(features.points)
    return LowRankGraph(factor, factor.sum(axis=0), to_factor, 1.0)


def _total_and_sign(feature_map: FeatureMap, X: Array) -> tuple[Array, bool]:
    """Column sums ``F^T 1`` over these rows, and whether any entry of X is negative."""
    return feature_map.total(X), bool(X.min() < 0)


@dataclass(frozen=True)
class UnitRows:
    """Feature map of `cosine`: rows of features scaled to length one."""

    n_features: int

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return self.n_features

    def times(self, X: Any, M: Array) -> Any:
        """Product ``F M``."""
        return self(X) @ M

    def total(self, X: Any) -> Array:
        """Column sums ``F^T 1``."""
        return np.asarray(self(X).sum(axis=0))

    def __call__(self, X_new: MatrixLike) -> Any:
        """Rows of F, shape (n_new, rank)."""
        table = check_new_features(X_new, self.n_features, sparse=True)
        lengths = np.sqrt(squared_lengths(table))
        zero = np.flatnonzero(lengths == 0)
        if zero.size:
            many = f"{zero.size:,} rows of X are all zeros and have no direction, the first of them row {{}}"
            raise RowError(
                f"{many if zero.size > 1 else 'Row {} of X is all zeros and has no direction'}. Cosine weights need rows "
                "that are not zero: leave such rows out.",
                zero[0],
            )
        return table / lengths[:, None] if isinstance(table, np.ndarray) else csr_array(table / lengths[:, None])


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Feature map of `nystrom`: ``x -> k(x, Z) U S^{-1/2}``."""

    features: Features  # with the landmarks Z as points
    tau: float
    whitening: Array  # U S^{-1/2}, shape (n_landmarks, rank)

    @property
    def rank(self) -> int:
        """Number of columns of F."""
        return self.whitening.shape[1]

    def __call__(self, X_new: MatrixLike) -> Array:
        """Rows of F, shape (n_new, rank)."""
        return self.of_points(self.features.project(X_new))

    def times(self, X: Any, M: Array) -> Array:
        """Product ``F M``, computed as a single product with k(X, Z)."""
        return self.of_points(self.features.project(X), self.whitening @ M)

    def total(self, X: Any) -> Array:
        """Column sums ``F^T 1``."""
        return self.of_points(self.features.project(X), sums=True)[0] @ self.whitening

    def of_points(self, points: Array, M: Array | None = None, *, sums: bool = False) -> Array:
        """``k(x, Z) M``, by default with the whitening as M; or, with `sums`, the sum of k(x, Z) over points."""
        M = self.whitening if M is None else M
        Z, parts = self.features.points, []
        for rows in row_blocks(len(points), 16 * len(Z)):  # small blocks stay in the cache
            weights = affinity(squared_distances(points[rows], Z), self.tau, self.tau)
            parts.append(weights.sum(axis=0, keepdims=True) if sums else weights @ M)
        return np.sum(parts, axis=0) if sums else np.concatenate(parts)


def _check_not_negative(graph: LowRankGraph) -> None:
    """Refuse negative weights: check all pairs if there are moderately many nodes, otherwise only the degrees."""
    n_nodes, factor, degrees = graph.n_nodes, graph.factor, graph.degrees
    least = min(block.min() for _, block in degrees.blocks()) if isinstance(degrees, Tall) else degrees.min()
    lowest = least
    if n_nodes <= _ALL_PAIRS_UP_TO:
        factor = np.asarray(factor) if isinstance(factor, Tall) else factor
        lowest = min((factor[rows] @ factor.T).min() for rows in row_blocks(n_nodes, n_nodes))
    if lowest < -_ROUNDING or least <= 0:
        raise ValueError(
            "Some nodes are more than a right angle apart, so their cosine weights are negative. Use "
            "nonnegative features (shift them, say), or Gaussian weights (of many rows: nystrom)."
        )
