"""Features in; columns in which a function may be linear, and the same columns for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

Array = NDArray[np.float64]

# Directions kept of wide features: u = <w, x> with w ~ N(0, I) is dominated by those of most variance.
MOST_COLUMNS = 50
# A new row is within reach up to this many times the length of the longest row of the fit.
REACH = 1.5


@dataclass(frozen=True, eq=False)
class LinearPiece:
    """``x -> (x - mean) W``, so that the covariance of ``u(x) = <w, columns(x)>``, w ~ N(0, I), is linear in x.

    Features are brought to variance one each; of more than 50 the principal directions are kept. Rows have squares
    that add up to 1 on average.

    Attributes:
        mean: of the features, shape (n_features,).
        weights: W, shape (n_features, n_columns).
        reach: how long rows may be for u to be taken as linear there.
    """

    mean: Array
    weights: Array
    reach: float

    @classmethod
    def of(cls, X: Any) -> LinearPiece | None:
        """From dense or sparse features; None where no feature varies."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.asarray(X.mean(axis=0)).ravel()
            if issparse(X):
                sparse: Any = X
                square = np.asarray(sparse.power(2).mean(axis=0)).ravel()
                deviation = np.sqrt(np.maximum(square - mean**2, 0))
            else:
                deviation = X.std(axis=0)
        varies = np.isfinite(deviation) & (deviation > 1e-12 * np.abs(mean)) & (deviation > 0)
        if not varies.any():
            return None
        scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0.0)
        wide = len(scale) > MOST_COLUMNS
        weights = _principal(X, mean, scale) if wide else np.diag(scale)[:, varies]
        length = np.linalg.norm(cls(mean, weights, np.inf).columns(X), axis=1)
        size = np.sqrt(np.square(length).mean())
        return cls(mean, weights / size, REACH * float(length.max() / size))

    def columns(self, X: Any) -> Array:
        """The columns of rows, shape (n_rows, n_columns)."""
        return np.asarray(X @ self.weights) - self.mean @ self.weights

    def within_reach(self, X: Any) -> tuple[Array, Array]:
        """The columns of new rows, cut to the reach, and the squared length that was cut off, shape (n_rows,)."""
        columns = self.columns(X)
        length = np.linalg.norm(columns, axis=1)
        kept = np.minimum(1.0, self.reach / np.maximum(length, 1e-300))
        return columns * kept[:, None], np.square((1 - kept) * length)


def _principal(X: Any, mean: Array, scale: Array) -> Array:
    """The directions of most variance of scaled features, by a few products with X: no dense copy of it is made."""
    from scipy.sparse.linalg import LinearOperator, svds

    def forward(V: Array) -> Array:
        scaled = (scale * V.T).T
        return np.asarray(X @ scaled - mean @ scaled)

    def backward(V: Array) -> Array:
        return np.asarray((scale * (X.T @ V - np.multiply.outer(mean, V.sum(axis=0))).T).T)

    operator = LinearOperator(
        X.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=float
    )
    n_kept = min(MOST_COLUMNS, *(size - 1 for size in X.shape))
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    directions = svds(operator, k=n_kept, v0=start)[2][::-1]
    return np.asarray(scale[:, None] * directions.T)
