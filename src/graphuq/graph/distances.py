"""Two sets of points in; their squared distances out, accurate for near pairs, and in blocks."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphuq.graph.features import Array
from graphuq.tall import row_blocks

Indices: TypeAlias = NDArray[np.intp]

_CANCELED = 1e-4  # below this share of |x|^2 + |y|^2 the matrix product has lost too many digits
_COINCIDENT = 1e-12  # distances below this share of the lengths are rounding (of a projection, say)


def squared_distances(X: Array, Y: Array) -> Array:
    """``|x_i - y_j|^2``, shape (rows of X, rows of Y); exactly 0 where two points coincide.

    ``|x|^2 + |y|^2 - 2 <x, y>`` is one matrix product, but it cancels where x and y are near; those
    entries are computed again by differences. Meant for one block of rows X at a time.
    """
    lengths = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Y, Y)
    squared = X @ Y.T
    squared *= -2
    squared += lengths
    lengths *= _CANCELED
    i, j = nonzero_pairs(squared <= lengths)
    squared[i, j] = pair_squared_distances(X, i, Y, j)
    return squared


def nearest_among(X: Array, rows: Indices, among: Indices, n: int) -> Indices:
    """The n rows `among` some that are nearest to each of others, nearest first, shape (n_rows, n)."""
    order = np.argsort(squared_distances(X[rows], X[among]), axis=1, kind="stable")
    return among[order[:, :n]]


def nonzero_pairs(table: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Rows and columns of the true entries: as np.nonzero, but several times faster where they are few."""
    i, j = np.divmod(np.flatnonzero(table), table.shape[1])
    return i, j


def pair_squared_distances(X: Array, i: Indices, Y: Array, j: Indices) -> Array:
    """``|x_i - y_j|^2`` for a list of pairs, by differences; exactly 0 where two points coincide."""
    squared = np.empty(i.size)
    for pairs in row_blocks(i.size, X.shape[1]):
        x, y = X[i[pairs]], Y[j[pairs]]
        floor = np.einsum("ij,ij->i", x, x) + np.einsum("ij,ij->i", y, y)
        floor *= _COINCIDENT**2
        x -= y
        between = np.einsum("ij,ij->i", x, x)
        between[between <= floor] = 0.0
        squared[pairs] = between
    return squared
