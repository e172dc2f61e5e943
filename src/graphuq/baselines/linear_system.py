"""A Laplacian, or a principal submatrix of one, and right-hand sides in; solutions of the linear system out."""

from __future__ import annotations

from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.linalg import LinAlgWarning, solve
from scipy.sparse import diags_array
from scipy.sparse.linalg import cg

from graphuq._warn import warn
from graphuq.graph.features import Array, Matrix

_RESIDUAL = 1e-12  # relative tolerance of conjugate gradients
_MAX_STEPS = 10_000
BARELY_JOINED = "parts of the graph hardly touch each other or a label. Join more neighbors, or label more nodes."


def solve_positive(M: Matrix, b: Array) -> Array:
    """``M^{-1} b`` for a symmetric positive definite M, one solution for each column of b.

    A sparse M may also be a (singular) Laplacian if the columns of b sum to zero, see `poisson`.
    """
    if isinstance(M, np.ndarray):
        with catch_warnings():
            simplefilter("error", LinAlgWarning)
            try:
                solution = solve(M, b, assume_a="pos", overwrite_a=True)
            except (ValueError, LinAlgWarning):  # also LinAlgError, and numbers that overflow
                solution = np.full(b.shape, np.nan)
        if not np.isfinite(solution).all():
            raise ValueError(f"The linear system is singular to rounding: {BARELY_JOINED}")
        return solution
    unit, size = M.diagonal().max(), np.abs(b).max() or 1.0  # squared residuals of tiny numbers would be 0
    M, b = M / unit, b / size
    inverse_diagonal = diags_array(1 / M.diagonal())
    solved = [cg(M, column, rtol=_RESIDUAL, maxiter=_MAX_STEPS, M=inverse_diagonal) for column in b.T]
    if any(failed for _, failed in solved):
        warn(f"Conjugate gradients did not converge: {BARELY_JOINED}", RuntimeWarning)
    return np.column_stack([column for column, _ in solved]) * (size / unit)
