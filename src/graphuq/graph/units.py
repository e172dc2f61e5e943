"""Features in any units in; the same as numbers of one scale out, whatever their skew, outliers or rare values.

Each feature is measured from its median, in units of its usual distance from it, and compressed,

    z = asinh((x - middle) / unit),

which is linear near the median and grows as a logarithm far from it: incomes, counts and outliers are comparable with
the rest. Then it is brought to deviation 1. There, a value that most rows have counts for half of them only: the deviation
of a rare yes among many noes would be small, and the step from no to yes large.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

Array = NDArray[np.float64]

# Rows, drawn at random, that units are read from: more of them would hardly change these. Of very many features fewer
# rows, so that they are about as many numbers.
MOST_ROWS, FEWEST_ROWS, MOST_NUMBERS = 10_000, 2_000, 20_000_000
# The median distance of normal numbers from their median, in deviations.
NORMAL_DISTANCE = 0.6745
# What differs from the median by less than this share of the deviation does not differ: it is rounding, or as good as.
SMALLEST_DIFFERENCE = 1e-8
# A value counts for at most this share of the rows, however many have it.
MOST_ALIKE = 0.5


def looked_at(X: Any) -> NDArray[np.int64]:
    """The rows that units are read from, in random order."""
    rng, (n_rows, n_features) = np.random.default_rng(0), X.shape
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_NUMBERS // n_features))
    many = n_rows > 10_000_000  # for a list of all
    return rng.choice(n_rows, most, replace=False) if many else rng.permutation(n_rows)[:most]


def units_of(X: Any) -> Array:
    """The median, the unit, and one over the deviation of each feature, shape (3, n_features).

    The unit is the median distance from the median of values other than it, over that of normal numbers of deviation 1.
    One over the deviation is 0 for a feature that does not vary.
    """
    return with_units(X)[0]


def with_units(X: Any) -> tuple[Array, Any, Any]:
    """The units, the rows that they were read from, and these in them."""
    X = X[looked_at(X)]
    middle, unit, differ = _measured(X)
    units = np.array([middle, unit, np.ones(len(unit))])
    z, same = in_units(X, units), np.arcsinh(middle / unit)
    mean = np.asarray(z.mean(axis=0)).ravel() - same
    square = np.asarray((z.power(2) if is_sparse(z) else z * z).mean(axis=0)).ravel()
    square -= same * (2 * mean + same)  # both about the median
    more = np.maximum(1.0, MOST_ALIKE / np.where(differ > 0, differ, 1.0))
    deviation = np.sqrt(np.maximum(more * square - np.square(more * mean), 0.0))
    varies = (differ > 0) & (deviation > 0)
    units[2] = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
    return units, X, csr_array(z.multiply(units[2])) if is_sparse(z) else z * units[2]


def in_units(X: Any, units: Array) -> Any:
    """``asinh((x - middle) / unit) / deviation``, less what it is at 0, so that sparse rows stay sparse."""
    middle, unit, scale = units
    if not is_sparse(X):
        return (np.arcsinh((X - middle) / unit) + np.arcsinh(middle / unit)) * scale
    found = csr_array(X, dtype=np.float64, copy=True)
    found.sum_duplicates()
    middle, unit, scale = units[:, found.indices]
    found.data = (np.arcsinh((found.data - middle) / unit) + np.arcsinh(middle / unit)) * scale
    return found


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix, of any kind."""
    return bool(issparse(X))


def _measured(X: Any) -> tuple[Array, Array, Array]:
    """The median of each feature, its unit, and the share of rows that are not at the median."""
    n_rows, n_features = X.shape
    middle, unit, differ = np.zeros(n_features), np.ones(n_features), np.zeros(n_features)
    if not is_sparse(X):
        for k, column in enumerate(np.ascontiguousarray(X.T)):
            middle[k], unit[k], differ[k] = _of_one(column)
        return middle, unit, differ
    X = csc_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    for k, others in enumerate(np.split(X.data, X.indptr[1:-1])):
        if 2 * len(others) >= n_rows:
            middle[k], unit[k], differ[k] = _of_one(X[:, [k]].toarray().ravel())
        else:  # more than half are 0, and so is the median
            unit[k], differ[k] = _unit(np.abs(others), n_rows, 0.0)
    return middle, unit, differ


def _of_one(x: Array) -> tuple[float, float, float]:
    """The median, the unit, and the share of values other than the median."""
    middle = float(np.median(x))
    return middle, *_unit(np.abs(x - middle), len(x), 1e-12 * abs(middle))


def _unit(apart: Array, n_rows: int, rounding: float) -> tuple[float, float]:
    """From distances from the median, of so many rows all that are not 0; a unit of 1 if there are none but for rounding."""
    most = apart.max(initial=0.0)
    if most <= rounding:
        return 1.0, 0.0
    deviation = most * np.sqrt(np.square(apart / most).sum() / n_rows)
    others = apart[apart > max(rounding, SMALLEST_DIFFERENCE * deviation)]
    half = len(others) // 2
    return float(np.partition(others, half)[half]) / NORMAL_DISTANCE, len(others) / n_rows
