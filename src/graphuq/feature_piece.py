"""Features in; linear and bent (nonlinear) basis functions of them, at the nodes and at new rows, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from graphuq._threads import blas_threads, eigen_threads
from graphuq.graph.features import principal
from graphuq.graph.units import in_units, to_dense, with_units
from graphuq.tall import Tall, row_blocks

Array = NDArray[np.float64]

# Principal directions kept of wide features: they dominate u = <w, x> with w ~ N(0, I).
MOST_COLUMNS = 50
# The reach of a feature is this many times its largest distance from the median in the training data.
REACH = 1.5
# Distances beyond the reach are clipped to this multiple of it, so that squares stay finite.
FARTHEST = 1e100
# The kernel of bent functions at the mean distance between rows is exp of minus this; chosen on other tables than
# those reported. Then the numbers of landmarks and of bent columns.
BENDING = 1.5
N_LANDMARKS, N_BENT = 200, 60


@dataclass(frozen=True, eq=False)
class FeaturePiece:
    """Basis functions h(x) of the features, linear and bent, for a prior ``u(x) = <w, h(x)>``, w ~ N(0, V).

    The features are compressed and scaled to standard deviation 1, see `units`; beyond 50 features, principal
    directions are used. With z these features, the linear columns are ``l(x) = (z - mean) W``. The bent columns
    b(x) are a centered Nystrom approximation of a Laplacian kernel, from its leading eigenvectors on landmarks,

        <b(x), b(x')> ~ exp(-1.5 |l(x) - l(x')|_1 / d),    |.|_1 the sum over columns, d its mean between rows.

    The sum over columns lets functions bend along single features, like the steps of a tree. The squares of the
    linear columns add up to 1 at an average row, and so do those of the bent ones.

    Attributes:
        units: median, unit and one over the deviation of each feature, shape (3, n_features).
        weights: W, shape (n_features, n_linear).
        offset: ``mean W``, shape (n_linear,).
        reach: the distance of a feature from its median up to which u is extrapolated, shape (n_features,).
        landmarks: l at the landmarks, times 1.5 / d, shape (n_landmarks, n_linear).
        turn: the map from kernel values at the landmarks to columns, shape (n_landmarks, n_bent).
        center: the mean that is subtracted from these columns, shape (n_bent,).
        rate: 1.5 / d, shape (1,).
    """

    units: Array
    weights: Array
    offset: Array
    reach: Array
    landmarks: Array
    turn: Array
    center: Array
    rate: Array

    @classmethod
    def of(cls, X: Any) -> FeaturePiece | None:
        """Fit to features, dense, sparse or in a store; None if no feature varies."""
        units, X, z = with_units(X)
        varies = units[2] > 0
        if not varies.any():
            return None
        mean = np.asarray(z.mean(axis=0)).ravel()
        if len(varies) > MOST_COLUMNS:
            weights = principal(z, mean, min(MOST_COLUMNS, z.shape[0] - 1))
        else:
            weights = np.eye(len(varies))[:, varies]
        linear = np.asarray(z @ weights) - mean @ weights
        size = np.sqrt(np.square(linear).sum(axis=1).mean())
        weights, linear = weights / size, linear / size
        top, bottom = (to_dense(extreme).ravel() for extreme in (X.max(axis=0), X.min(axis=0)))
        reach = REACH * np.maximum(top - units[0], units[0] - bottom)
        return cls(units, weights, mean @ weights, reach, *_bending(_spread(linear), linear))

    @property
    def n_bent(self) -> int:
        """Number of bent columns, which come first."""
        return self.turn.shape[1]

    def columns(self, X: Any) -> Any:
        """The columns at rows, shape (n_rows, n_bent + n_linear); computed lazily for features in a store."""
        if isinstance(X, Tall):
            return X.mapped(self.columns, self.n_bent + self.weights.shape[1])
        linear = np.asarray(in_units(X, self.units) @ self.weights) - self.offset
        return np.hstack([_bent(self.rate * linear, self.landmarks, self.turn) - self.center, linear])

    def within_reach(self, X: Any) -> tuple[Array, Array]:
        """The columns at new rows with features clipped to their reach, and the squared excess, shape (n_rows,).

        The excess of a feature is measured relative to its reach, without compression, so it grows without bound.
        """
        middle, scale, divisor = self.units[0], self.units[2], np.where(self.reach > 0, self.reach, 1.0)
        at_reach = np.arcsinh(self.reach / self.units[1]) * scale
        columns, beyond = [], []
        for part in row_blocks(X.shape[0], X.shape[1]):
            offset = to_dense(X[part]) - middle
            excess = np.clip(np.abs(offset) / divisor - 1, 0.0, FARTHEST)
            columns.append(self.columns(middle + np.clip(offset, -self.reach, self.reach)))
            beyond.append(np.square((np.sign(offset) * excess * at_reach) @ self.weights).sum(axis=1))
        return np.concatenate(columns), np.concatenate(beyond)


def _bent(rows: Array, landmarks: Array, turn: Array) -> Array:
    """Bent columns from kernel values ``exp(-|x - y|_1)`` at the landmarks, in blocks that fit in the cache."""
    parts = [rows[part] for part in row_blocks(len(rows), 16 * len(landmarks))]
    with blas_threads(0):
        return np.concatenate([np.exp(-cdist(part, landmarks, "cityblock")) @ turn for part in parts])


def _spread(linear: Array) -> Array:
    """Landmarks, evenly spaced among rows sorted by the sum of their columns: independent of the row order."""
    order = np.lexsort((*linear.T, np.round(linear.sum(axis=1), 9)))
    return linear[order[np.linspace(0, len(linear) - 1, min(N_LANDMARKS, len(linear))).round().astype(np.int64)]]


def _bending(chosen: Array, linear: Array) -> tuple[Array, Array, Array, Array]:
    """`landmarks`, `turn`, `center` and `rate`, from the linear columns of the landmarks and of all rows."""
    rate = np.array([BENDING / cdist(linear, chosen, "cityblock").mean()])
    landmarks = rate * chosen
    with eigen_threads(len(landmarks)):
        values, vectors = eigh(np.exp(-cdist(landmarks, landmarks, "cityblock")))
    kept = np.flatnonzero(values > 1e-8 * values[-1])[::-1][:N_BENT]
    turn = vectors[:, kept] / np.sqrt(values[kept])
    columns = _bent(rate * linear, landmarks, turn)
    center = columns.mean(axis=0)
    size = np.sqrt(np.square(columns - center).sum(axis=1).mean())
    return landmarks, turn / size, center / size, rate
