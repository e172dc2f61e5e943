"""Rows of features in; which of them are the same row, and whether their classes agree, out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq._expect import RowWarning, called, refuse_masked
from graphuq._warn import warn
from graphuq.classes import Labels
from graphuq.graph import Graph
from graphuq.graph.units import looked_at, units_of
from graphuq.tall import Tall

Array = NDArray[np.float64]

# Rows turned into sparse ones at a time: a dense table is not copied whole.
BLOCK_ROWS = 1000
# The widest column against the narrowest but a quarter of them: pixels of digits, or their principal components, differ
# by less than 4. And a column's range in its own robust units, in which those pixels have ranges below 100.
UNLIKE_RANGES, OUTLYING = 10.0, 1000.0
# Rows that are enough to tell what is usual.
SOME_ROWS = 1000
# A range of less than this share of the numbers is rounding.
ROUNDING = 1e-12


def weights_of(estimator: Any, X: Any) -> Any:
    """The weights of a `Graph`, for an estimator that takes weights; anything else as it is."""
    return X.weights if isinstance(X, Graph) and estimator.graph == "precomputed" else X


def read_features(estimator: Any, X: Any, **settings: Any) -> Any:
    """A table of numbers as scikit-learn takes it, dense or by rows; what is wrong with it in one line, without its numbers."""
    from sklearn.utils.validation import validate_data

    refuse_masked(X, "X")
    _refuse_others(X)
    try:
        return validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, **settings)
    except (TypeError, ValueError, OverflowError) as error:
        told = re.sub(r":?\narray=.*?\n(?=Reshape)", ". ", str(error), flags=re.DOTALL)
        told = re.sub(r"(?<=Complex data not supported)\n.*", ".", told, flags=re.DOTALL)
        known = isinstance(error, ValueError) or hasattr(X, "__array__") or isinstance(X, list | tuple)
        known &= not told.startswith("float()")  # which tells of a cell, and not where it lies
        if found := re.match(r"could not convert string to float: (?:np\.\w+\()?(b?'[^']*')", told):
            raise ValueError(
                f"X holds text, {found[1][:60]}, and features are numbers: turn texts into a sparse matrix, with "
                "scikit-learn's TfidfVectorizer say, and categories into columns, with its OneHotEncoder."
            ) from None
        if "with a sequence" in told or isinstance(error, OverflowError):
            why = "a number of it is too large" if isinstance(error, OverflowError) else "its rows are not alike"
            raise ValueError(
                f"X must be a table of real numbers, one row like another, got {called(X)}: {why}."
            ) from None
        about = "" if known else f"X must be a table of real numbers, got {called(X)}: "
        raise type(error)(about + " ".join(told.split())) from None


def _refuse_others(X: Any) -> None:
    """Refuse a plan of a table, columns of one name, and times: they would be counted in units that nobody chose."""
    if hasattr(X, "collect") and not hasattr(X, "__array__"):
        raise TypeError(
            f"X must be a table of real numbers, got {called(X)}, which is still to be computed: collect it."
        )
    if isinstance(X, str | PathLike):
        raise TypeError(
            f"X must be a table of real numbers, got the path {str(X)[:60]!r}: tall.tall opens what lies there."
        )
    if isinstance(X, Graph):
        raise TypeError('X must be a table of real numbers, got a Graph: fit it with graph="precomputed".')
    if hasattr(X, "adjacency"):  # of networkx
        raise TypeError(
            f"X must be a table or a matrix of weights, got {called(X)}: networkx.to_scipy_sparse_array makes one of it, "
            'for graph="precomputed".'
        )
    names = [str(name) for name in getattr(X, "columns", ())]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"X has more than one column {twice!r}: give each its own name.")
    kinds = [X.dtype] if hasattr(X, "dtype") else getattr(X, "dtypes", ())  # of each column of a frame
    for k, kind in enumerate(kinds):
        if re.match(r"<m8|date|time|period|duration", str(kind), flags=re.IGNORECASE):
            raise TypeError(
                f"X holds times ({kind}, in column {k}), and features are numbers: subtract a first time and divide by a "
                "unit, such as a day, that makes them comparable with the other features."
            )


def unlike_columns(X: Any, names: Sequence[str] = ()) -> str:
    """What is told of columns if a few of them, or a few of their values, would decide which rows are similar."""
    low, high = _extremes(X)
    with np.errstate(over="ignore"):
        ranges = high - low
    ranges[ranges <= ROUNDING * np.maximum(np.abs(low), np.abs(high))] = 0.0
    if not ranges.any():
        return ""
    factor = ranges.max() / np.quantile(ranges[ranges > 0], 0.25, method="lower")
    if factor > UNLIKE_RANGES:
        return f"Columns of X differ in range by a factor of {_rounded(factor)}"
    far = ranges / units_of(X[looked_at(X)[:SOME_ROWS]])[1]
    worst = int(far.argmax())
    if far[worst] <= OUTLYING:
        return ""
    name = repr(names[worst]) if len(names) else worst
    return f"Column {name} of X has values {_rounded(far[worst])} times as far apart as most of them are"


def _extremes(X: Any) -> tuple[Array, Array]:
    """The least and the largest value of each column, of a store in one pass."""
    parts = (block for _, block in X.blocks()) if isinstance(X, Tall) else (X,)
    lows, highs = zip(*((part.min(axis=0), part.max(axis=0)) for part in parts), strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _rounded(factor: float) -> str:
    return f"{factor:,.0f}" if factor < 1e9 else f"{factor:.0e}"


def fingerprints(X: Any) -> list[bytes]:
    """16 bytes for each row of a dense or CSR matrix: of what is not zero, so equal for equal rows of either kind."""
    found = []
    for first in range(0, X.shape[0], BLOCK_ROWS):
        block = csr_array(X[first : first + BLOCK_ROWS], copy=True)
        block.sum_duplicates()  # and sort the columns
        block.eliminate_zeros()
        parts = [np.split(each, block.indptr[1:-1]) for each in (block.indices.astype(np.int64), block.data)]
        contents = (where.tobytes() + what.tobytes() for where, what in zip(*parts, strict=True))
        found += [blake2b(content, digest_size=16).digest() for content in contents]
    return found


def warn_of_contradictions(rows: list[bytes], labels: Labels) -> None:
    """Say which labeled rows, given by their fingerprints, are alike in every feature and labeled differently."""
    first: dict[bytes, tuple[int, int]] = {}
    for row, i, label in zip(rows, labels.nodes, labels.y, strict=True):
        j, other = first.setdefault(row, (i, label))
        if label != other:
            told = (
                "Rows {} and {} are the same in every feature but have different classes: the data cannot decide "
            )
            warn(RowWarning(told + "between rows like these.", j, i))
            return


def average_equal(values: Array, rows: list[bytes]) -> Array:
    """The values with those of rows that are alike in every feature replaced by their mean."""
    if len(set(rows)) == len(rows):
        return values
    _, group = np.unique(np.array(rows, dtype=np.dtype((np.void, 16))), return_inverse=True)
    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return np.asarray((sums / np.bincount(group)[:, None])[group])
