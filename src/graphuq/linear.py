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


@dataclass(frozen=True, eq=False)
class LinearPiece:
    """``x -> (x - mean) W``, so that the covariance of ``u(x) = <w, columns(x)>``, w ~ N(0, I), is linear in x.

    Features are brought to variance one each; of more than 50 the principal directions are kept. Rows have squares
    that add up to 1 on average.

    Attributes:
        mean: of the features, shape (n_features,).
        weights: W, shape (n_features, n_columns).
    """

    mean: Array
    weights: Array

    @classmethod
    def of(cls, X: Any) -> LinearPiece | None:
        """From dense or sparse features; None where no feature varies."""
        n_rows, n_features = X.shape
        if issparse(X):
            mean = np.asarray(X.mean(axis=0)).ravel()
            square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
        else:
            with np.errstate(over="ignore"):
                mean, deviation = X.mean(axis=0), X.std(axis=0)
        varies = (deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300)) & np.isfinite(deviation)
        if not varies.any():
            return None
        weights = (
            np.diag(np.where(varies, 1 / np.where(varies, deviation, 1), 0.0))[:, varies]
            if n_features <= 5000
            else None
        )
        if n_features > MOST_COLUMNS or weights is None:
            weights = _principal(X, mean, np.where(varies, 1 / np.where(varies, deviation, 1), 0.0))
        piece = cls(mean, weights)
        size = np.sqrt(np.square(piece.columns(X)).sum(axis=1).mean())
        return cls(mean, weights / size)

    def columns(self, X: Any) -> Array:
        """The columns of rows, shape (n_rows, n_columns)."""
        return np.asarray(X @ self.weights) - self.mean @ self.weights


def _principal(X: Any, mean: Array, scale: Array) -> Array:
    """The directions of most variance of scaled features, by a few products with X: no dense copy of it is made."""
    from scipy.sparse.linalg import LinearOperator, svds

    n_rows, n_features = X.shape
    operator = LinearOperator(
        (n_rows, n_features),
        matvec=lambda v: X @ (scale * v.ravel()) - mean @ (scale * v.ravel()),
        rmatvec=lambda v: scale * (X.T @ v.ravel() - mean * v.sum()),
        matmat=lambda V: X @ (scale[:, None] * V) - mean @ (scale[:, None] * V),
        rmatmat=lambda V: scale[:, None] * (X.T @ V - np.outer(mean, V.sum(axis=0))),
        dtype=float,
    )
    n_kept = min(MOST_COLUMNS, n_rows - 1, n_features - 1)
    start = np.random.default_rng(0).standard_normal(min(n_rows, n_features))
    directions = svds(operator, k=n_kept, v0=start, return_singular_vectors="vh")[2][::-1]
    return np.asarray(scale[:, None] * directions.T)
