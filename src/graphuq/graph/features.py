"""Raw features in; validated, centered and optionally projected points, and the same map for new rows, out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, eigh, qr, svd
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from graphuq._expect import RowError, expect_count, expect_numbers, expect_well_formed
from graphuq._threads import blas_threads, eigen_threads
from graphuq.graph.units import in_units, to_dense, units_of

Array: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Array | csr_array
MatrixLike: TypeAlias = ArrayLike | sparray | spmatrix

# A covariance matrix of more features, or a Gram matrix of more rows, costs more than products with X.
MOST_IN_COVARIANCE = 2_000
# Extra directions and iterations of the randomized SVD: 300 directions of 4,000 texts of random words, a spectrum
# without gaps, then hold 98% of the variance that the best 300 hold.
OVERSAMPLED, SUBSPACE_ITERATIONS = 20, 4
# Distance from the origin of rows without a direction; all others have length 1.
FAR = 10.0
_LARGEST_SQUARE = 1e300  # squared lengths up to here can be added and subtracted without overflow


def to_float(A: MatrixLike, name: str = "X") -> Matrix:
    """Convert A to float64, dense or CSR; it is not copied if it already has that form."""
    matrix: Any = A
    if not issparse(A):
        return expect_numbers(matrix, name)
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, got {matrix.dtype}.")
    expect_well_formed(matrix, name)
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

    ``z = x - mean``, or ``z = W (x - mean)`` with principal directions as rows of W; x may be in robust units. With
    `unit_length`, x and then z are scaled to length 1, so that distances compare directions. A row of zeros has no
    direction and is placed far from all others.

    Attributes:
        points: the nodes, shape (n_nodes, n_dimensions).
        mean: mean of the features, in robust units if these are used, shape (n_features,).
        components: W, shape (n_dimensions, n_features), or None for no projection.
        units: result of `units.units_of`, shape (3, n_features), or None where features are compared as given.
        unit_length: whether points have length 1.
    """

    points: Array
    mean: Array
    components: Array | None
    units: Array | None = None
    unit_length: bool = False

    def project(self, X_new: MatrixLike) -> Array:
        """Map raw features of new points to points, shape (n_new, n_dimensions)."""
        table = check_new_features(X_new, self.mean.size, sparse=self.components is not None)
        if self.units is not None:
            table = in_units(table, self.units)
        table = _unit_rows(table) if self.unit_length else table
        return _to_points(table, self.mean, self.components, self.unit_length)


def prepare(X: Matrix, n_components: int | None, *, robust: bool = False, unit_length: bool = False) -> Features:
    """Center validated features, which keeps distances accurate; optionally use robust units, PCA and unit length."""
    if robust:
        units = units_of(X)
        return replace(prepare(in_units(X, units), n_components, unit_length=unit_length), units=units)
    X = _unit_rows(X) if unit_length else X
    mean = X.mean(axis=0)
    components = None if n_components is None else principal(X, mean, n_components).T
    points = _to_points(X, mean, components, unit_length)
    return Features(points, mean, components, unit_length=unit_length)


def principal(X: Any, mean: Array, n_kept: int) -> Array:
    """Principal directions as columns: from the covariance, the Gram matrix or, if both are large, a randomized SVD.

    n rows vary in at most n - 1 directions: the Gram matrix and the randomized SVD return no more than these.
    """
    n_rows, n_features = X.shape
    if not issparse(X):
        X, mean = X - mean, np.zeros(n_features)
    fewer_rows = n_kept < n_rows < n_features
    if (n_features <= MOST_IN_COVARIANCE and not fewer_rows) or n_kept == n_features:
        with blas_threads(n_rows * n_features**2):
            return _leading(to_dense(X.T @ X) / n_rows - np.outer(mean, mean), n_kept)
    n_kept, rng = min(n_kept, n_rows - 1), np.random.default_rng(0)
    centered = less_rank_one(X, np.ones(n_rows), mean)
    if not (centered @ rng.standard_normal((n_features, 1))).any():  # all rows are identical
        return np.eye(n_features, n_kept)
    if n_rows > MOST_IN_COVARIANCE:
        return _randomized(centered, n_kept, rng)
    to_mean = X @ mean
    with blas_threads(n_rows**2 * n_features):
        gram = to_dense(X @ X.T) - to_mean - to_mean[:, None] + mean @ mean
        return np.asarray(qr(centered.T @ _leading(gram, n_kept), mode="economic")[0])


def _leading(symmetric: Array, n_kept: int) -> Array:
    """Eigenvectors of the largest eigenvalues as columns, largest first; rows of zeros (say, blank pixels) cost nothing."""
    n, used = len(symmetric), np.flatnonzero(symmetric.any(axis=0))
    if n_kept <= used.size < n:
        vectors = np.zeros((n, n_kept))
        vectors[used] = _leading(symmetric[np.ix_(used, used)], n_kept)
        return vectors
    with eigen_threads(n):
        try:
            vectors = eigh(symmetric, subset_by_index=[n - n_kept, n - 1])[1]
        except LinAlgError:  # LAPACK may fail on a subset of very many equal eigenvalues
            vectors = eigh(symmetric)[1][:, -n_kept:]
    return np.asarray(vectors[:, ::-1])


def _randomized(A: Any, n_kept: int, rng: np.random.Generator) -> Array:
    """Leading right singular vectors by subspace iteration (Halko, Martinsson and Tropp 2011, Algorithms 4.4, 5.1).

    It needs a few products with blocks of vectors, where a Lanczos iteration multiplies one vector at a time.
    """
    n_columns = min(n_kept + OVERSAMPLED, *A.shape)
    with blas_threads(sum(A.shape) * n_columns**2):
        left = A @ rng.standard_normal((A.shape[1], n_columns))
        for _ in range(SUBSPACE_ITERATIONS):
            left = A @ qr(A.T @ qr(left, mode="economic")[0], mode="economic")[0]
        Q = qr(left, mode="economic")[0]
        return np.asarray(svd((A.T @ Q).T, full_matrices=False)[2][:n_kept].T)


def less_rank_one(S: Any, left: Array, right: Array) -> Any:
    """``S - left right^T`` as a linear operator, so that a sparse S stays sparse."""
    from scipy.sparse.linalg import aslinearoperator

    return aslinearoperator(S) - aslinearoperator(left[:, None]) @ aslinearoperator(right[None])


def _unit_rows(X: Any) -> Any:
    """Rows scaled to length 1; rows of zeros unchanged."""
    lengths = np.sqrt(squared_lengths(X))
    scale = 1 / np.where(lengths > 0, lengths, 1.0)[:, None]
    return X * scale if isinstance(X, np.ndarray) else csr_array(X.multiply(scale))


def _to_points(X: Matrix, mean: Array, components: Array | None, unit_length: bool) -> Array:
    """Center and project rows; with `unit_length`, scale them to length 1 and place rows of zeros far away."""
    if components is None:
        points = X - mean
    elif isinstance(X, np.ndarray):
        points = (X - mean) @ components.T
    else:
        points = X @ components.T - mean @ components.T  # a centered sparse matrix would be dense
    if unit_length:
        points = _unit_rows(points)
        no_direction = squared_lengths(X) == 0
        points[no_direction] = 0.0
        points[no_direction, 0] = FAR
    return points


def _check_table(X: MatrixLike, *, n_rows: int, sparse: bool) -> Matrix:
    if issparse(X) and not sparse:
        raise TypeError(
            "X is sparse, but distances need dense features. Project them with n_components where the graph "
            "takes it, or pass X.toarray()."
        )
    table = to_float(X)
    if isinstance(table, np.ndarray):
        # rounding depends on the order in memory, and decides between equal distances
        table = np.asarray(table, order="C")
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
        many = f"{bad.size:,} rows, the first of them " if bad.size > 1 else ""
        raise RowError(f"X has {problem} in {many}row {{}}. {remedy}.", int(bad[0]))
    return table
