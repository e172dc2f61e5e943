"""Features in; columns in which a function is linear, or bends, and the same columns for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from graphuq._threads import blas_threads
from graphuq.graph.features import principal
from graphuq.graph.units import in_units, is_sparse, with_units
from graphuq.tall import Tall, row_blocks

Array = NDArray[np.float64]

# Directions kept of wide features: u = <w, x> with w ~ N(0, I) is dominated by those of most variance.
MOST_COLUMNS = 50
# A feature is within reach up to this many times the largest distance from its median in the fit.
REACH = 1.5
# Farther than so many times its reach no feature counts: squares stay finite.
FARTHEST = 1e100
# Rows as far apart as rows are on average have a bent function's values correlated as exp of minus this; chosen on
# tables that are not reported. And the rows and columns that carry it.
BENDING = 1.5
N_LANDMARKS, N_BENT = 200, 60


@dataclass(frozen=True, eq=False)
class FeaturePiece:
    """Columns h(x) with ``u(x) = <w, h(x)>``, w ~ N(0, V), for functions of the features that are linear, or bend.

    The features are compressed and brought to deviation 1, see `units`; of more than 50 the principal directions are
    kept. With z these features, linear columns are ``l(x) = (z - mean) W``. Bent ones, b(x), have

        <b(x), b(x')> ~ exp(-1.5 |l(x) - l(x')|_1 / d),    |.|_1 the sum over columns, d its mean between rows,

    through its leading eigenfunctions on some rows, the landmarks, and centered. In the sum over columns what one feature
    says may bend without the others, as steps do in a tree. The squares of linear columns add up to 1 at an average
    row, and so do those of bent ones.

    Attributes:
        units: median, unit and one over the deviation of each feature, shape (3, n_features).
        weights: W, shape (n_features, n_linear).
        offset: ``mean W``, shape (n_linear,).
        reach: how far from its median a feature may be for u to be known there, shape (n_features,).
        landmarks: l of some rows, times 1.5 / d, shape (n_landmarks, n_linear).
        turn: what turns similarities to landmarks into columns, shape (n_landmarks, n_bent).
        center: what is taken off these, shape (n_bent,).
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
        """From dense or sparse features, or those in a store; None where no feature varies."""
        units, X, z = with_units(X)
        varies = units[2] > 0
        if not varies.any():
            return None
        mean = np.asarray(z.mean(axis=0)).ravel()
        weights = np.eye(len(varies))[:, varies]
        if len(varies) > MOST_COLUMNS:
            weights = principal(z, mean, min(MOST_COLUMNS, z.shape[0] - 1))
        linear = np.asarray(z @ weights) - mean @ weights
        size = np.sqrt(np.square(linear).sum(axis=1).mean())
        weights, linear = weights / size, linear / size
        top, bottom = (np.asarray(_dense(each)).ravel() for each in (X.max(axis=0), X.min(axis=0)))
        reach = REACH * np.maximum(top - units[0], units[0] - bottom)
        return cls(units, weights, mean @ weights, reach, *_bending(_spread(linear), linear))

    @property
    def n_bent(self) -> int:
        """How many of the columns, the first, are bent."""
        return self.turn.shape[1]

    def columns(self, X: Any) -> Any:
        """The columns of rows, shape (n_rows, n_bent + n_linear); those of a store are made when they are asked for."""
        if isinstance(X, Tall):
            return X.mapped(self.columns, self.n_bent + self.weights.shape[1])
        linear = np.asarray(in_units(X, self.units) @ self.weights) - self.offset
        return np.hstack([_bent(self.rate * linear, self.landmarks, self.turn) - self.center, linear])

    def within_reach(self, X: Any) -> tuple[Array, Array]:
        """The columns of new rows, each feature cut to its reach, and the squared length that was cut off, shape (n_rows,).

        What is cut off is measured in units of the reach, and grows without bound: far away nothing is known.
        """
        middle, scale, farthest = self.units[0], self.units[2], np.where(self.reach > 0, self.reach, 1.0)
        at_reach = np.arcsinh(self.reach / self.units[1]) * scale
        columns, beyond = [], []
        for part in row_blocks(X.shape[0], X.shape[1]):
            apart = _dense(X[part]) - middle
            over = np.clip(np.abs(apart) / farthest - 1, 0.0, FARTHEST)
            columns.append(self.columns(middle + np.clip(apart, -self.reach, self.reach)))
            beyond.append(np.square((np.sign(apart) * over * at_reach) @ self.weights).sum(axis=1))
        return np.concatenate(columns), np.concatenate(beyond)


def _dense(X: Any) -> Any:
    return X.toarray() if is_sparse(X) else X


def _bent(rows: Array, landmarks: Array, turn: Array) -> Array:
    """Similarities ``exp(-|x - y|_1)`` to landmarks, turned into columns; in small blocks, which stay in the cache."""
    parts = [rows[part] for part in row_blocks(len(rows), 16 * len(landmarks))]
    with blas_threads(0):
        return np.concatenate([np.exp(-cdist(part, landmarks, "cityblock")) @ turn for part in parts])


def _spread(linear: Array) -> Array:
    """Some of the rows, evenly along the sum of their columns: the same ones in whatever order rows are given."""
    order = np.lexsort((*linear.T, np.round(linear.sum(axis=1), 9)))
    return linear[order[np.linspace(0, len(linear) - 1, min(N_LANDMARKS, len(linear))).round().astype(np.int64)]]


def _bending(some: Array, linear: Array) -> tuple[Array, Array, Array, Array]:
    """Landmarks, what turns similarities to them into columns, their center, and the rate; from rows of linear columns."""
    rate = np.array([BENDING / cdist(linear, some, "cityblock").mean()])
    landmarks = rate * some
    values, vectors = eigh(np.exp(-cdist(landmarks, landmarks, "cityblock")))
    kept = np.flatnonzero(values > 1e-8 * values[-1])[::-1][:N_BENT]
    turn = vectors[:, kept] / np.sqrt(values[kept])
    columns = _bent(rate * linear, landmarks, turn)
    center = columns.mean(axis=0)
    size = np.sqrt(np.square(columns - center).sum(axis=1).mean())
    return landmarks, turn / size, center / size, rate
