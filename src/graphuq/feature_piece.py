"""Features in; columns in which a function is linear, or smooth, and the same columns for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csc_array, csr_array, issparse

from graphuq._threads import blas_threads
from graphuq.graph.distances import squared_distances
from graphuq.tall import Tall, row_blocks

Array = NDArray[np.float64]

# Rows, drawn at random, that everything is computed from: more of them would hardly change it. Of dense features wider
# than this, fewer rows, so that they are no more numbers than these.
MOST_ROWS, FEWEST_ROWS, MOST_NUMBERS = 10_000, 1_000, 20_000_000
# The median distance of normal numbers from their median, in deviations.
NORMAL_DISTANCE = 0.6745
# A unit is at least this share of the deviation, so that rounding is not taken for a difference.
SMALLEST_UNIT = 1e-6
# A value counts for at most this share of the rows, however many have it.
MOST_ALIKE = 0.5
# Directions kept of wide features: u = <w, x> with w ~ N(0, I) is dominated by those of most variance.
MOST_COLUMNS = 50
# A new row is within reach up to this many times the length of the longest row of the fit.
REACH = 1.5
# The share of the variance that bends, over what squared distance (rows are 2 apart on average), and the rows and
# columns that carry it. Share and distance were chosen on tables that are not reported.
SMOOTH_SHARE, SMOOTH_DISTANCE = 0.4, 1.5
N_LANDMARKS, N_SMOOTH = 400, 60
# Of more features a covariance matrix costs more than products with X.
MOST_IN_COVARIANCE = 2_000


@dataclass(frozen=True, eq=False)
class FeaturePiece:
    """Columns h(x) with ``u(x) = <w, h(x)>``, w ~ N(0, I), a linear function of compressed features plus a smooth one.

    Each feature is measured from its median, in units of its usual distance from it, and compressed,

        z = asinh((x - middle) / unit),

    which is linear near the median and grows as a logarithm far from it: incomes, counts and outliers are comparable
    with the rest. Then it is brought to deviation 1. There, a value that most rows have counts for half of them only:
    the deviation of a rare yes among many noes would be small, and the step from no to yes large.

    Of more than 50 features the principal directions are kept. With ``l(x) = (z - mean) W``, whose squares add up to 1
    on average, and s the share that bends,

        Cov(u(x), u(x')) = (1 - s) <l(x), l(x')> + s k(x, x'),    k ~ exp(-|l(x) - l(x')|^2 / (2 * 1.5)),

    k through its leading eigenfunctions on some rows, the landmarks, centered, and of size 1 on average as well.

    Attributes:
        middle: the median of each feature, shape (n_features,).
        unit: the median distance from it of values other than it, over that of normal numbers of deviation 1.
        weights: W, shape (n_features, n_linear).
        offset: ``mean W``, shape (n_linear,).
        reach: how long ``(x - middle) / unit W`` may be for u to be known there.
        landmarks: l of some rows, shape (n_landmarks, n_linear).
        smooth: what turns similarities to landmarks into columns, shape (n_landmarks, n_smooth).
        center: what is taken off these, shape (n_smooth,).
    """

    middle: Array
    unit: Array
    weights: Array
    offset: Array
    reach: float
    landmarks: Array
    smooth: Array
    center: Array

    @classmethod
    def of(cls, X: Any) -> FeaturePiece | None:
        """From dense or sparse features, or those in a store; None where no feature varies."""
        X = X[looked_at(X)]
        middle, unit, differ = _units(X)
        varies = differ > 0
        if not varies.any():
            return None
        z = _compressed(X, middle, unit)
        mean = np.asarray(z.mean(axis=0)).ravel()
        deviation = _deviation(z, mean, _at_zero(middle, unit), differ)
        scale = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
        weights = _principal(z, mean, scale) if len(scale) > MOST_COLUMNS else np.diag(scale)[:, varies]
        linear = np.asarray(z @ weights) - mean @ weights
        size = np.sqrt(np.square(linear).sum(axis=1).mean())
        weights, linear = weights / size, linear / size
        landmarks, smooth, center = _smooth(linear[:N_LANDMARKS], linear)
        piece = cls(middle, unit, weights, mean @ weights, np.inf, landmarks, smooth, center)
        return replace(piece, reach=REACH * float(piece._lengths(X).max()))

    def columns(self, X: Any) -> Any:
        """The columns of rows, shape (n_rows, n_linear + n_smooth); those of a store are made when they are asked for."""
        if isinstance(X, Tall):
            return X.mapped(self.columns, self.weights.shape[1] + self.smooth.shape[1])
        linear = np.asarray(_compressed(X, self.middle, self.unit) @ self.weights) - self.offset
        bent = _bent(linear, self.landmarks, self.smooth) - self.center
        return np.hstack([np.sqrt(1 - SMOOTH_SHARE) * linear, np.sqrt(SMOOTH_SHARE) * bent])

    def within_reach(self, X: Any) -> tuple[Array, Array]:
        """The columns of new rows, cut to the reach, and the squared length that was cut off, shape (n_rows,)."""
        columns, length = self.columns(X), self._lengths(X)
        kept = np.minimum(1.0, self.reach / np.maximum(length, 1e-300))
        beyond = np.flatnonzero(kept < 1)
        for part in row_blocks(len(beyond), X.shape[1]):
            rows = X[beyond[part]]
            rows = rows.toarray() if _is_sparse(rows) else rows
            columns[beyond[part]] = self.columns(self.middle + kept[beyond[part], None] * (rows - self.middle))
        return columns, np.square((1 - kept) * length)

    def _lengths(self, X: Any) -> Array:
        """``|W^T (x - middle) / unit|`` of each row."""
        per_feature = self.weights / self.unit[:, None]
        return np.asarray(np.linalg.norm(X @ per_feature - self.middle @ per_feature, axis=1))


def looked_at(X: Any) -> NDArray[np.int64]:
    """The rows that a piece is made from, in random order: the first are the landmarks."""
    rng, (n_rows, n_features) = np.random.default_rng(0), X.shape
    most = MOST_ROWS if _is_sparse(X) else min(MOST_ROWS, max(FEWEST_ROWS, MOST_NUMBERS // n_features))
    many = n_rows > 10_000_000  # for a list of all
    return rng.choice(n_rows, most, replace=False) if many else rng.permutation(n_rows)[:most]


def _is_sparse(X: Any) -> bool:
    return bool(issparse(X))


def _at_zero(middle: Array, unit: Array) -> Array:
    return np.arcsinh(middle / unit)


def _compressed(X: Any, middle: Array, unit: Array) -> Any:
    """``asinh((x - middle) / unit)``, less what it is at 0, so that sparse rows stay sparse."""
    if not _is_sparse(X):
        return np.arcsinh((X - middle) / unit) + _at_zero(middle, unit)
    found = csr_array(X, dtype=np.float64, copy=True)
    column = found.indices
    found.data = np.arcsinh((found.data - middle[column]) / unit[column]) + _at_zero(middle, unit)[column]
    return found


def _units(X: Any) -> tuple[Array, Array, Array]:
    """The median of each feature, the unit in which distances from it are measured, and the share of rows not at it."""
    n_rows, n_features = X.shape
    middle, unit, differ = np.zeros(n_features), np.ones(n_features), np.zeros(n_features)
    if _is_sparse(X):
        apart = csc_array(abs(X))
        apart.eliminate_zeros()
        counts = np.diff(apart.indptr)
        for k in np.flatnonzero(counts).tolist():  # the median is 0, unless more than half are not
            if 2 * counts[k] < n_rows:
                others = apart.data[apart.indptr[k] : apart.indptr[k + 1]]
                unit[k], differ[k] = _unit(others, n_rows), len(others) / n_rows
            else:
                middle[k], unit[k], differ[k] = _unit_of(X[:, [k]].toarray().ravel())
        return middle, unit, differ
    for k in range(n_features):
        middle[k], unit[k], differ[k] = _unit_of(X[:, k])
    return middle, unit, differ


def _unit_of(x: Array) -> tuple[float, float, float]:
    """Median, unit, and share of values other than the median; a unit of 1 if there are none but for rounding."""
    middle = float(np.median(x))
    apart = np.abs(x - middle)
    others = apart[apart > 1e-12 * abs(middle)]
    return middle, _unit(others, len(x)) if len(others) else 1.0, len(others) / len(x)


def _unit(others: Array, n_rows: int) -> float:
    """From the distances of values that differ from the median."""
    least = SMALLEST_UNIT * np.sqrt(np.square(others).sum() / n_rows)
    middle = len(others) // 2
    return float(max(np.partition(others, middle)[middle] / NORMAL_DISTANCE, least))


def _deviation(z: Any, mean: Array, middle: Array, differ: Array) -> Array:
    """Of compressed features, with the rows at the median counting as half of all at most."""
    square = np.asarray((z.power(2) if _is_sparse(z) else z * z).mean(axis=0)).ravel()
    first, second = mean - middle, square - 2 * middle * mean + middle**2  # moments about the median
    more = np.maximum(1.0, MOST_ALIKE / np.where(differ > 0, differ, 1.0))
    return np.sqrt(np.maximum(more * second - np.square(more * first), 0.0))


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


def _principal(z: Any, mean: Array, scale: Array) -> Array:
    """The directions of most variance of scaled features, from their covariance or, of very many, by products with z."""
    from scipy.sparse.linalg import LinearOperator, svds

    n_kept = min(MOST_COLUMNS, *(size - 1 for size in z.shape))
    if len(scale) <= MOST_IN_COVARIANCE and not _is_sparse(z):
        last = len(scale) - 1
        with blas_threads(len(scale) ** 3):
            covariance = scale[:, None] * (z.T @ z / len(z) - np.outer(mean, mean)) * scale
            directions = eigh(covariance, subset_by_index=[last - n_kept + 1, last])[1][:, ::-1]
        return np.asarray(scale[:, None] * directions)

    def forward(V: Array) -> Array:
        scaled = (scale * V.T).T
        return np.asarray(z @ scaled - mean @ scaled)

    def backward(V: Array) -> Array:
        return np.asarray((scale * (z.T @ V - np.multiply.outer(mean, V.sum(axis=0))).T).T)

    operator = LinearOperator(
        z.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=float
    )
    start = np.random.default_rng(0).standard_normal(min(z.shape))
    directions = svds(operator, k=n_kept, v0=start)[2][::-1].T
    return np.asarray(scale[:, None] * directions)
