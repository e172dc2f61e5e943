"""Features in arbitrary units in; features on one common scale, robust to skew, outliers and rare values, out.

Each feature is centered at its median, divided by a robust unit of spread, and compressed,

    z = asinh((x - middle) / unit),

which is linear near the median and logarithmic far from it, so that incomes, counts and outliers stay comparable
with the rest. It is then scaled to standard deviation 1. For that deviation, rows at the median count as at most
half of all rows: otherwise a rare "yes" among many "no" would have a tiny deviation, and a huge step between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

from graphuq._threads import in_threads

Array = NDArray[np.float64]

# Units are estimated from a random sample of rows: more rows would hardly change them. With very many features the
# sample has fewer rows, to bound the total number of entries.
MOST_ROWS, FEWEST_ROWS, MOST_NUMBERS = 10_000, 2_000, 20_000_000
# Entries of a block of dense columns, small enough for one core to measure and convert in its cache.
IN_CACHE = 2**17
# Median absolute deviation of a standard normal variable.
NORMAL_DISTANCE = 0.6745
# Differences from the median below this fraction of the standard deviation count as rounding, hence as equal.
SMALLEST_DIFFERENCE = 1e-8
# The median value counts for at most this fraction of the rows, however many have it.
MOST_ALIKE = 0.5


def sampled_rows(X: Any) -> NDArray[np.int64]:
    """Indices of the rows from which units are estimated, in random order."""
    rng, (n_rows, n_features) = np.random.default_rng(0), X.shape
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_NUMBERS // n_features))
    many = n_rows > 10_000_000  # too many to permute them all
    return rng.choice(n_rows, most, replace=False) if many else rng.permutation(n_rows)[:most]


def units_of(X: Any) -> Array:
    """Median, unit and inverse standard deviation (after compression) of each feature, shape (3, n_features).

    The unit is the median absolute deviation over the values that differ from the median, divided by that of a
    standard normal variable. The inverse deviation is 0 for a constant feature.
    """
    return with_units(X)[0]


def with_units(X: Any) -> tuple[Array, Any, Any]:
    """The units (see `units_of`), the sampled rows they were estimated from, and those rows in these units."""
    X = X[sampled_rows(X)]
    if is_sparse(X):
        units, z = _own_units(X)
        return units, X, csr_array(z)
    step = max(1, IN_CACHE // X.shape[0])
    columns = (X[:, first : first + step] for first in range(0, X.shape[1], step))
    units, z = map(np.hstack, zip(*in_threads(_own_units, columns), strict=True))
    return units, X, z


def _own_units(X: Any) -> tuple[Array, Any]:
    """The units of the features of X, and X in these units."""
    middle, unit, share_off_median = _measured(X)
    units = np.array([middle, unit, np.ones(len(unit))])
    z, at_median = in_units(X, units), np.arcsinh(middle / unit)
    mean = np.asarray(z.mean(axis=0)).ravel() - at_median
    square = np.asarray((z.power(2) if is_sparse(z) else z * z).mean(axis=0)).ravel()
    square -= at_median * (2 * mean + at_median)  # both moments are now about the median
    inflation = np.maximum(1.0, MOST_ALIKE / np.where(share_off_median > 0, share_off_median, 1.0))
    deviation = np.sqrt(np.maximum(inflation * square - np.square(inflation * mean), 0.0))
    varies = (share_off_median > 0) & (deviation > 0)
    units[2] = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
    return units, z.multiply(units[2]) if is_sparse(z) else z * units[2]


def in_units(X: Any, units: Array) -> Any:
    """``asinh((x - middle) / unit) / deviation``, shifted to be 0 at x = 0, so that sparse rows stay sparse."""
    middle, unit, scale = units
    if not is_sparse(X):
        return (np.arcsinh((X - middle) / unit) + np.arcsinh(middle / unit)) * scale
    converted = csr_array(X, dtype=np.float64, copy=True)
    converted.sum_duplicates()
    middle, unit, scale = units[:, converted.indices]
    converted.data = (np.arcsinh((converted.data - middle) / unit) + np.arcsinh(middle / unit)) * scale
    return converted


def is_sparse(X: Any) -> bool:
    """Whether X is a SciPy sparse matrix or array of any format."""
    return bool(issparse(X))


def to_dense(X: Any) -> Array:
    """X as an array, dense or sparse."""
    return np.asarray(X.toarray() if is_sparse(X) else X)


def _measured(X: Any) -> tuple[Array, Array, Array]:
    """Median and unit of each feature, and the fraction of its rows that differ from the median."""
    n_rows, n_features = X.shape
    middle, unit, share_off_median = np.zeros(n_features), np.ones(n_features), np.zeros(n_features)
    if not is_sparse(X):
        for k, column in enumerate(np.ascontiguousarray(X.T)):
            middle[k], unit[k], share_off_median[k] = _of_one(column)
        return middle, unit, share_off_median
    X = csc_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    for k, nonzeros in enumerate(np.split(X.data, X.indptr[1:-1])):
        if 2 * len(nonzeros) >= n_rows:
            middle[k], unit[k], share_off_median[k] = _of_one(X[:, [k]].toarray().ravel())
        else:  # more than half of the entries are 0, so the median is 0
            unit[k], share_off_median[k] = _unit(np.abs(nonzeros), n_rows, 0.0)
    return middle, unit, share_off_median


def _of_one(x: Array) -> tuple[float, float, float]:
    """Median and unit of one dense column, and the fraction of its values that differ from the median."""
    middle = float(np.median(x))
    return middle, *_unit(np.abs(x - middle), len(x), 1e-12 * abs(middle))


def _unit(apart: Array, n_rows: int, rounding: float) -> tuple[float, float]:
    """Unit, and fraction of rows off the median, from the distances to the median; (1, 0) for a constant column.

    `apart` may leave out zero distances; `n_rows` counts all rows.
    """
    most = apart.max(initial=0.0)
    if most <= rounding:
        return 1.0, 0.0
    deviation = most * np.sqrt(np.square(apart / most).sum() / n_rows)
    others = apart[apart > max(rounding, SMALLEST_DIFFERENCE * deviation)]
    half = len(others) // 2
    return float(np.partition(others, half)[half]) / NORMAL_DISTANCE, len(others) / n_rows
