"""Blocks of vectors in; the same filtered and rotated, for the iteration of `chebyshev`, on the CPU, out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq._threads import blas_threads, in_threads

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Matrix = Floats | csr_array

LARGEST_LOG = 40.0  # log of the growth allowed between rescalings: exp of twice this still fits a float32
_BLOCK = 32  # columns filtered together; a few such blocks fit in the cache
_ROWS = 4096  # rows rotated together; a few such blocks fit in the cache


class OnProcessor:
    """Operations on vectors in memory; holds two more arrays of their size, the filtered vectors W and L W.

    Args:
        matrix: L.
        Z: orthonormal basis of its null space, shape (n_nodes, n_null).
        vectors: shape (n_nodes, width); overwritten with the rotated vectors.
    """

    def __init__(self, matrix: Matrix, Z: Array, vectors: Floats) -> None:
        self._operators = [matrix.astype(np.float32), *([matrix] if vectors.dtype == np.float64 else [])]
        self._exact, self._Z, self._out = self._operators[-1], Z.astype(vectors.dtype), vectors
        self._W, self._LW = np.empty((2, *vectors.shape), vectors.dtype)

    def filtered(
        self, vectors: Any, degrees: NDArray[np.int64], rough: NDArray[np.bool_], bounds: tuple[float, float, int]
    ) -> tuple[Any, Any]:
        """The filtered vectors W, orthogonal to the null space, and L W.

        Args:
            vectors: shape (n_nodes, width).
            degrees: filter degree of each vector.
            rough: which vectors have residuals so large that single precision suffices.
            bounds: ends of the interval that is damped, and the number of steps between rescalings.
        """
        cut, upper, rescale_every = bounds
        twice = [_twice(operator, cut, upper) for operator in self._operators]

        def filter_block(start: int) -> None:
            columns = slice(start, start + _BLOCK)
            precision = 0 if rough[columns].all() else -1
            X = np.ascontiguousarray(vectors[:, columns], dtype=self._operators[precision].dtype)
            X = _filter(twice[precision], X, int(degrees[columns].max()), rescale_every)
            X = complement(self._Z, X.astype(vectors.dtype, copy=False))
            self._W[:, columns], self._LW[:, columns] = X, self._exact @ X

        starts = range(0, vectors.shape[1], _BLOCK)
        if isinstance(self._exact, np.ndarray):  # all the work is in BLAS, which has its own threads
            with blas_threads(vectors.size * len(vectors)):
                for start in starts:
                    filter_block(start)
        else:  # columns are independent, and sparse products release the GIL
            for _ in in_threads(filter_block, starts):
                pass
        return self._W, self._LW

    def products(self, W: Floats, LW: Floats) -> Any:
        """``W^T W`` and ``W^T L W`` in float64: nearly dependent columns need every digit."""

        def of_rows(rows: slice) -> Array:
            part = W[rows].astype(np.float64, copy=False)
            return np.array([part.T @ part, part.T @ LW[rows].astype(np.float64, copy=False)])

        return summed(of_rows, len(W))

    def independent(self, W: Floats) -> tuple[Any, Any]:
        """Orthonormal columns with the span of W, and L times them."""
        Q = np.linalg.qr(W).Q
        return Q, self._exact @ Q

    def rotated(self, W: Floats, LW: Floats, U: Array, values: Array) -> tuple[Any, Array]:
        """``W U``, and the squared norms of the columns of ``L W U - W U diag(values)``."""
        rotation, scale = U.astype(W.dtype), values.astype(W.dtype)

        def rotate_rows(rows: slice) -> Floats:
            np.matmul(W[rows], rotation, out=self._out[rows])
            R = LW[rows] @ rotation - self._out[rows] * scale
            return np.einsum("ij,ij->j", R, R)

        return self._out, summed(rotate_rows, len(W)).astype(np.float64)


def summed(work: Callable[[slice], Floats], n_rows: int) -> Any:
    """Sum of `work` over blocks of rows, added in order, so that threads do not change the result."""
    return sum(in_threads(work, (slice(first, first + _ROWS) for first in range(0, n_rows, _ROWS))))


def _twice(matrix: Matrix, cut: float, upper: float) -> Callable[[Floats], Floats]:
    """``X -> 2 t X`` with ``t = (center - L) / radius`` of [cut, upper]; sparse, 2 t is formed to save passes."""
    factor, shift = -4 / (upper - cut), 2 * (upper + cut) / (upper - cut)
    if isinstance(matrix, np.ndarray):
        return lambda X: factor * (matrix @ X) + shift * X
    twice = matrix * matrix.dtype.type(factor)
    twice.setdiag(twice.diagonal() + twice.dtype.type(shift))
    return lambda X: twice @ X


def _filter(twice: Callable[[Floats], Floats], X: Floats, degree: int, rescale_every: int) -> Floats:
    """``T_degree(t) X`` up to a scalar factor, T the Chebyshev polynomial, given ``X -> 2 t X``.

    The recurrence ``T_{d+1} = 2 t T_d - T_{d-1}`` grows like ``exp(d growth)``, hence the rescaling.
    """
    if degree == 0:
        return X
    scale = X.dtype.type(np.exp(-LARGEST_LOG))
    previous, X = X, twice(X) / 2
    for step in range(1, degree):
        W = twice(X)
        W -= previous
        previous, X = X, W
        if step % rescale_every == 0:
            previous *= scale
            X *= scale
    return X


def complement(Z: Any, X: Any) -> Any:
    """Columns of X made orthogonal to Z and of unit length; twice, since the first pass may cancel digits."""
    for _ in range(2):
        X = X - Z @ (Z.T @ X)
        X /= (X * X).sum(axis=0) ** 0.5 + np.finfo(X.dtype).tiny
    return X
