"""Features in; columns in which a function is linear, or smooth, and the same columns for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import issparse

from graphuq._threads import blas_threads
from graphuq.graph.distances import squared_distances
from graphuq.large.passes import summed
from graphuq.tall import Tall, row_blocks, tall

Array = NDArray[np.float64]

# Directions kept of wide features: u = <w, x> with w ~ N(0, I) is dominated by those of most variance.
MOST_COLUMNS = 50
# A new row is within reach up to this many times the length of the longest row of the fit.
REACH = 1.5
# The share of the variance that bends, over what squared distance (rows are 2 apart on average), and the rows and
# columns that carry it. Share and distance were chosen on tables that are not reported.
SMOOTH_SHARE, SMOOTH_DISTANCE = 0.4, 1.5
N_LANDMARKS, N_SMOOTH = 400, 60
BLOCK_ROWS = 10_000
# Of more features a covariance matrix costs more than products with X.
MOST_IN_COVARIANCE = 2_000


@dataclass(frozen=True, eq=False)
class FeaturePiece:
    """Columns h(x) with ``u(x) = <w, h(x)>``, w ~ N(0, I), a linear function of x plus a smooth one.

    Features are brought to variance one each; of more than 50 the principal directions are kept. With ``l(x) = (x -
    mean) W``, whose squares add up to 1 on average, and s the share that bends,

        Cov(u(x), u(x')) = (1 - s) <l(x), l(x')> + s k(x, x'),    k ~ exp(-|l(x) - l(x')|^2 / (2 * 1.5)),

    k through its leading eigenfunctions on some rows, the landmarks, centered, and of size 1 on average as well.

    Attributes:
        mean: of the features, shape (n_features,).
        weights: W, shape (n_features, n_linear).
        reach: how long l(x) may be for u to be taken as linear there.
        landmarks: l of some rows, shape (n_landmarks, n_linear).
        smooth: what turns similarities to landmarks into columns, shape (n_landmarks, n_smooth).
        center: what is taken off these, shape (n_smooth,).
    """

    mean: Array
    weights: Array
    reach: float
    landmarks: Array
    smooth: Array
    center: Array

    @classmethod
    def of(cls, X: Any, *, progress: bool | None = None) -> FeaturePiece | None:
        """From dense or sparse features, or those in a store, which are read twice; None where no feature varies."""
        if issparse(X):
            sparse: Any = X
            mean = np.asarray(sparse.mean(axis=0)).ravel()
            square = np.asarray(sparse.power(2).mean(axis=0)).ravel()
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
            covariance = None
        else:
            X = tall(X)
            mean, deviation, covariance = _moments(X, progress)
        varies = np.isfinite(deviation) & (deviation > 1e-12 * np.abs(mean)) & (deviation > 0)
        if not varies.any():
            return None
        scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0.0)
        wide = len(scale) > MOST_COLUMNS
        weights = _principal(X, mean, scale, covariance) if wide else np.diag(scale)[:, varies]
        middle = mean @ weights
        lengths = partial(_lengths, weights, middle)
        squares, longest = lengths(X) if issparse(X) else summed(X, lengths, shown=progress, desc="features")
        size = np.sqrt(squares / X.shape[0])
        landmarks, spread = (_linear(weights, middle, X[each]) / size for each in looked_at(X.shape[0]))
        return cls(mean, weights / size, REACH * float(max(longest) / size), *_smooth(landmarks, spread))

    def columns(self, X: Any) -> Any:
        """The columns of rows, shape (n_rows, n_linear + n_smooth); those of a store are made when they are asked for."""
        if isinstance(X, Tall):
            return X.mapped(self.columns, self.weights.shape[1] + self.smooth.shape[1])
        return self._columns(_linear(self.weights, self.mean @ self.weights, X))

    def within_reach(self, X: Any) -> tuple[Array, Array]:
        """The columns of new rows, cut to the reach, and the squared length that was cut off, shape (n_rows,)."""
        linear = _linear(self.weights, self.mean @ self.weights, X)
        length = np.linalg.norm(linear, axis=1)
        kept = np.minimum(1.0, self.reach / np.maximum(length, 1e-300))
        return self._columns(linear * kept[:, None]), np.square((1 - kept) * length)

    def _columns(self, linear: Array) -> Array:
        bent = _bent(linear, self.landmarks, self.smooth) - self.center
        return np.hstack([np.sqrt(1 - SMOOTH_SHARE) * linear, np.sqrt(SMOOTH_SHARE) * bent])


def looked_at(n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that are landmarks, and those that they are centered by."""
    rng = np.random.default_rng(0)
    many = n_rows > 10_000_000  # for a list of all
    some = rng.choice(n_rows, N_LANDMARKS, replace=False) if many else rng.permutation(n_rows)[:N_LANDMARKS]
    return some, np.arange(0, n_rows, 1 + n_rows // BLOCK_ROWS)


def _linear(weights: Array, middle: Array, X: Any) -> Array:
    """``(x - mean) W`` of rows, from ``mean W``."""
    return np.asarray(X @ weights) - middle


def _lengths(weights: Array, middle: Array, X: Any) -> tuple[float, list[float]]:
    """The sum of the squares of these, and the longest, in a list, which is not added up but grows."""
    squares = np.square(_linear(weights, middle, X)).sum(axis=1)
    return float(squares.sum()), [float(np.sqrt(squares.max()))]


def _centered(start: Array, X: Array) -> tuple[Array, Array]:
    """Sums of rows less a row, and of their products, or, of very many features, of their squares."""
    with np.errstate(over="ignore", invalid="ignore"):
        X = X - start
        return X.sum(axis=0), X.T @ X if X.shape[1] <= MOST_IN_COVARIANCE else np.square(X).sum(axis=0)


def _moments(X: Tall, progress: bool | None) -> tuple[Array, Array, Array | None]:
    """Mean and deviation of each feature, and, of not too many, their covariance, in one pass."""
    start = X[:BLOCK_ROWS].mean(axis=0)  # near the mean: nothing is lost to cancellation
    total, products = summed(X, partial(_centered, start), shown=progress, desc="features")
    with np.errstate(over="ignore", invalid="ignore"):
        total, products = total / X.shape[0], products / X.shape[0]
        if products.ndim == 1:
            return start + total, np.sqrt(np.maximum(products - total**2, 0)), None
        covariance = products - np.outer(total, total)
        return start + total, np.sqrt(np.maximum(np.diag(covariance), 0)), covariance


def _bent(linear: Array, landmarks: Array, turn: Array) -> Array:
    """Similarities to landmarks, turned into columns; in small blocks, which stay in the cache."""
    parts = [linear[rows] for rows in row_blocks(len(linear), 16 * len(landmarks))]
    with blas_threads(0):
        return np.concatenate(
            [np.exp(-squared_distances(part, landmarks) / (2 * SMOOTH_DISTANCE)) @ turn for part in parts]
        )


def _smooth(landmarks: Array, spread: Array) -> tuple[Array, Array, Array]:
    """Landmarks, what turns similarities to them into columns, and their center, from rows that are spread out."""
    with blas_threads(len(landmarks) ** 3):
        values, vectors = eigh(np.exp(-squared_distances(landmarks, landmarks) / (2 * SMOOTH_DISTANCE)))
    kept = np.flatnonzero(values > 1e-8 * values[-1])[::-1][:N_SMOOTH]
    turn = vectors[:, kept] / np.sqrt(values[kept])
    columns = _bent(spread, landmarks, turn)
    center = columns.mean(axis=0)
    size = np.sqrt(np.square(columns - center).sum(axis=1).mean())
    return landmarks, turn / size, center / size


def _principal(X: Any, mean: Array, scale: Array, covariance: Array | None) -> Array:
    """The directions of most variance of scaled features, from their covariance or, of very many, by products with X.

    No copy of X is made; of a store some rows stand for all.
    """
    from scipy.sparse.linalg import LinearOperator, svds

    n_kept = min(MOST_COLUMNS, *(size - 1 for size in X.shape))
    if covariance is not None:
        last = len(scale) - 1
        covariance = scale[:, None] * covariance * scale
        with blas_threads(len(scale) ** 3):
            directions = eigh(covariance, subset_by_index=[last - n_kept + 1, last])[1][:, ::-1]
        return np.asarray(scale[:, None] * directions)
    if isinstance(X, Tall):
        X = X[:: 1 if X.in_memory else 1 + X.shape[0] // BLOCK_ROWS]

    def forward(V: Array) -> Array:
        scaled = (scale * V.T).T
        return np.asarray(X @ scaled - mean @ scaled)

    def backward(V: Array) -> Array:
        return np.asarray((scale * (X.T @ V - np.multiply.outer(mean, V.sum(axis=0))).T).T)

    operator = LinearOperator(
        X.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=float
    )
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    directions = svds(operator, k=n_kept, v0=start)[2][::-1].T
    return np.asarray(scale[:, None] * directions)
