"""Raw features in; validated, centered and optionally projected points, and the same map for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, eigh
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from graphuq._expect import expect_count, expect_numbers
from graphuq._threads import blas_threads
from graphuq.graph.units import in_units, is_sparse, units_of

Array: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Array | csr_array
MatrixLike: TypeAlias = ArrayLike | sparray | spmatrix

# With more features than this, forming the covariance matrix costs more than products with X.
MOST_IN_COVARIANCE = 2_000
_LARGEST_SQUARE = 1e300  # squared lengths up to here can be added and subtracted without overflow


def to_float(A: MatrixLike, name: str = "X") -> Matrix:
    """Convert A to float64, dense or CSR; without a copy if it is that already."""
    matrix: Any = A
    if not issparse(A):
        return expect_numbers(matrix, name)
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, got {matrix.dtype}.")
    return csr_array(matrix, dtype=np.float64)


def check_features(X: MatrixLike, *, n_components: int | None = None, sparse: bool = False) -> Matrix:
    """Validate the features of a graph: a table of at least two rows of finite numbers."""
    table = _check_table(X, n_rows=2, sparse=sparse or n_components is not None)
    if n_components is not None:
        n_rows, n_features = table.shape
        what = f"the smaller of {n_rows} rows and {n_features} features, or be left out for no projection"
        expect_count(n_components, "n_components", min(table.shape), what)
    return table


def check_new_features(X_new: MatrixLike, n_features: int, *, sparse: bool = False) -> Matrix:
    """Validate features of new points: a table with the columns of the graph's own features."""
    table = _check_table(X_new, n_rows=1, sparse=sparse)
    if table.shape[1] != n_features:
        raise ValueError(f"X has {table.shape[1]} features, but the graph was made from {n_features}.")
    return table


def squared_lengths(table: Matrix) -> Array:
    """Squared norm ``|x_i|^2`` of every row."""
    if isinstance(table, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", table, table))
    return np.asarray(table.multiply(table).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Features:
    """Points in the space where distances are measured, and the map from raw features to that space.

    ``z = x - mean``, or ``z = W (x - mean)`` with principal directions as rows of W; x may be in robust units.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        mean: mean of the features, in robust units if these are used, shape (n_features,).
        components: W, shape (n_dimensions, n_features), or None for no projection.
        units: result of `units.units_of`, shape (3, n_features), or None where features are compared as given.
    """

    points: Array
    mean: Array
    components: Array | None
    units: Array | None = None

    def project(self, X_new: MatrixLike) -> Array:
        """Map raw features of new points to points, shape (n_new, n_dimensions)."""
        table = check_new_features(X_new, self.mean.size, sparse=self.components is not None)
        if self.units is not None:
            table = in_units(table, self.units)
        return _center_and_project(table, self.mean, self.components)


def prepare(X: Matrix, n_components: int | None, *, robust: bool = False) -> Features:
    """Center validated features, which keeps distances accurate; optionally use robust units and PCA."""
    if robust:
        units = units_of(X)
        return replace(prepare(in_units(X, units), n_components), units=units)
    mean = X.mean(axis=0)
    components = None if n_components is None else principal(X, mean, n_components).T
    return Features(_center_and_project(X, mean, components), mean, components)


def principal(X: Any, mean: Array, n_kept: int) -> Array:
    """Principal directions as columns: from the covariance or, with very many features, by a truncated SVD.

    Only n - 1 directions of n rows have any variance, and the SVD returns no more than these.
    """
    from scipy.sparse.linalg import svds

    n_rows, n_features = X.shape
    if not issparse(X):
        X, mean = X - mean, np.zeros(n_features)
    if n_features <= MOST_IN_COVARIANCE or n_kept == n_features:
        with blas_threads(n_rows * n_features**2):
            squares = X.T @ X
            covariance = (squares.toarray() if is_sparse(squares) else squares) / n_rows - np.outer(mean, mean)
            try:
                directions = eigh(covariance, subset_by_index=[n_features - n_kept, n_features - 1])[1]
            except LinAlgError:  # LAPACK may fail on a subset of very many equal eigenvalues
                directions = eigh(covariance)[1][:, -n_kept:]
        return np.asarray(directions[:, ::-1])
    n_kept, rng = min(n_kept, n_rows - 1), np.random.default_rng(0)
    centered = less_rank_one(X, np.ones(n_rows), mean)
    if not (centered @ rng.standard_normal((n_features, 1))).any():  # all rows are identical
        return np.eye(n_features, n_kept)
    return np.asarray(svds(centered, k=n_kept, v0=rng.standard_normal(min(X.shape)))[2][::-1].T)


def less_rank_one(S: Any, left: Array, right: Array) -> Any:
    """``S - left right^T`` as a linear operator, so that a sparse S stays sparse."""
    from scipy.sparse.linalg import LinearOperator

    def forward(V: Array) -> Array:
        return np.asarray(S @ V - np.multiply.outer(left, right @ V))

    def backward(U: Array) -> Array:
        return np.asarray(S.T @ U - np.multiply.outer(right, left @ U))

    products = {"matvec": forward, "rmatvec": backward, "matmat": forward, "rmatmat": backward}
    return LinearOperator(S.shape, dtype=np.float64, **products)


def _center_and_project(X: Matrix, mean: Array, components: Array | None) -> Array:
    if components is None:
        return X - mean
    if isinstance(X, np.ndarray):
        return (X - mean) @ components.T
    return X @ components.T - mean @ components.T  # a centered sparse matrix would be dense


def _check_table(X: MatrixLike, *, n_rows: int, sparse: bool) -> Matrix:
    if issparse(X) and not sparse:
        raise TypeError(
            "X is sparse, but distances need dense features. Project them with n_components where the graph "
            "takes it, or pass X.toarray()."
        )
    table = to_float(X)
    if table.ndim != 2 or table.shape[0] < n_rows or table.shape[1] < 1:
        raise ValueError(
            f"X must be a table of features, one row a node, with at least {n_rows} rows and 1 column, "
            f"got the shape {table.shape}."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squared_lengths(table)
    bad = np.flatnonzero(~(squares < _LARGEST_SQUARE))
    if bad.size:
        finite = np.isfinite(table[bad] if isinstance(table, np.ndarray) else table[bad].data).all()
        problem = "numbers too large to square" if finite else "NaN or infinite values"
        remedy = (
            "Divide the features by a large number" if finite else "Fill in what is missing, or remove such rows"
        )
        where = f"{bad.size:,} rows, the first of them row {bad[0]}" if bad.size > 1 else f"row {bad[0]}"
        raise ValueError(f"X has {problem} in {where}. {remedy}.")
    return table
