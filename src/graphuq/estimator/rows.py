"""A feature table as a user passes it in; a validated matrix out, with checks on its scales and duplicate rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq._expect import RowWarning, called, expect_well_formed, refuse_masked
from graphuq._warn import warn
from graphuq.classes import Labels
from graphuq.graph import Graph
from graphuq.graph.units import sampled_rows, units_of
from graphuq.tall import Tall

Array = NDArray[np.float64]

# Rows converted to sparse format at a time, so that a dense table is never copied whole.
BLOCK_ROWS = 1000
# Thresholds for rescaling: the largest column range over the lower quartile of the ranges (below 4 for pixels of
# digits and their principal components), and a column's range in its own robust units (below 100 for the pixels).
UNLIKE_RANGES, OUTLYING = 10.0, 1000.0
# Rows from which the robust units are estimated.
SOME_ROWS = 1000
# Attributes of lazy frames, networkx's graphs and AnnData, which are not tables themselves.
OTHERS = ("collect", "adjacency", "obs")
# A range below this fraction of the values counts as rounding error.
ROUNDING = 1e-12


def weights_of(estimator: Any, X: Any) -> Any:
    """The weights of a `Graph` if the estimator expects weights; any other X unchanged."""
    return X.weights if isinstance(X, Graph) and estimator.graph == "precomputed" else X


def read_features(estimator: Any, X: Any, **settings: Any) -> Any:
    """Validate X with scikit-learn (dense or CSR, float64); errors become one line that does not print X."""
    from sklearn.utils.validation import validate_data

    refuse_masked(X, "X")
    _refuse_others(X)
    expect_well_formed(X, "X")
    try:
        return validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, **settings)
    except (TypeError, ValueError, OverflowError) as error:
        message = re.sub(r":?\narray=.*?\n(?=Reshape)", ". ", str(error), flags=re.DOTALL)
        message = re.sub(r"(?<=Complex data not supported)\n.*", ".", message, flags=re.DOTALL)
        recognized = isinstance(error, ValueError) or hasattr(X, "__array__") or isinstance(X, list | tuple)
        recognized &= not message.startswith("float()")  # which quotes a cell without saying where it is
        text_cell = re.match(
            r"""could not convert string to float: (?:np\.\w+\()?(b?(['"]).*\2)""", message, re.DOTALL
        )
        if text_cell:
            raise ValueError(
                f"X holds text, {text_cell[1][:60]}, and features are numbers: turn texts into a sparse matrix, with "
                "scikit-learn's TfidfVectorizer say, and categories into columns, with its OneHotEncoder."
            ) from None
        if "with a sequence" in message or isinstance(error, OverflowError):
            why = "a number is too large" if isinstance(error, OverflowError) else "its rows are not alike"
            raise ValueError(
                f"X must be a table of real numbers, one row like another, got {called(X)}: {why}."
            ) from None
        prefix = "" if recognized else f"X must be a table of real numbers, got {called(X)}: "
        raise type(error)(prefix + " ".join(message.split())) from None


def _refuse_others(X: Any) -> None:
    """Raise an error for objects that only hold a table, duplicate column names, and times (of arbitrary unit)."""
    lazy = not hasattr(X, "__array__") and any(hasattr(X, name) for name in OTHERS)
    if lazy or isinstance(X, str | PathLike | Graph):
        raise TypeError(
            f"X must be a table of real numbers, got {called(X)}: pass a matrix or a data frame, or what tall.tall opens at a "
            'path; a matrix of weights goes with graph="precomputed".'
        )
    names = [str(name) for name in getattr(X, "columns", ())]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"X has more than one column {twice!r}: give each its own name.")
    dtypes = [X.dtype] if hasattr(X, "dtype") else getattr(X, "dtypes", ())  # of each column of a frame
    for k, dtype in enumerate(dtypes):
        if re.match(r"<m8|date|time|period|duration", str(dtype), flags=re.IGNORECASE):
            raise TypeError(
                f"X holds times ({dtype}, in column {k}), and features are numbers: subtract a first time and divide by a "
                "unit, such as a day, that makes them comparable with the other features."
            )


def unlike_columns(X: Any, names: Sequence[str] = ()) -> str:
    """A message if a few columns, or a few outlying values, would dominate the distances; "" otherwise."""
    low, high = _extremes(X)
    with np.errstate(over="ignore"):
        ranges = high - low
    ranges[ranges <= ROUNDING * np.maximum(np.abs(low), np.abs(high))] = 0.0
    if not ranges.any() or np.isnan(ranges).any():  # NaN in a store is refused where its row is known
        return ""
    factor = ranges.max() / np.quantile(ranges[ranges > 0], 0.25, method="lower")
    if factor > UNLIKE_RANGES:
        return f"Columns of X differ in range by a factor of {_rounded(factor)}"
    spread = ranges / units_of(X[sampled_rows(X)[:SOME_ROWS]])[1]
    worst = int(spread.argmax())
    if spread[worst] <= OUTLYING:
        return ""
    name = repr(names[worst]) if len(names) else worst
    return f"Column {name} of X has values {_rounded(spread[worst])} times as far apart as most of them are"


def _extremes(X: Any) -> tuple[Array, Array]:
    """Minimum and maximum of each column; a store is read in one pass."""
    parts = (block for _, block in X.blocks()) if isinstance(X, Tall) else (X,)
    lows, highs = zip(*((part.min(axis=0), part.max(axis=0)) for part in parts), strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _rounded(factor: float) -> str:
    return f"{factor:,.0f}" if factor < 1e9 else f"{factor:.0e}"


def fingerprints(X: Any) -> list[bytes]:
    """A 16-byte hash of the nonzero entries of each row, the same for dense and CSR matrices."""
    hashes = []
    for first in range(0, X.shape[0], BLOCK_ROWS):
        block = csr_array(X[first : first + BLOCK_ROWS], copy=True)
        block.sum_duplicates()  # also sorts the column indices
        block.eliminate_zeros()
        parts = [np.split(array, block.indptr[1:-1]) for array in (block.indices.astype(np.int64), block.data)]
        contents = (columns.tobytes() + values.tobytes() for columns, values in zip(*parts, strict=True))
        hashes += [blake2b(content, digest_size=16).digest() for content in contents]
    return hashes


def warn_of_contradictions(rows: list[bytes], labels: Labels) -> None:
    """Warn of the first two labeled rows with equal fingerprints but different labels."""
    first: dict[bytes, tuple[int, int]] = {}
    for fingerprint, i, label in zip(rows, labels.nodes, labels.y, strict=True):
        j, other = first.setdefault(fingerprint, (i, label))
        if label != other:
            message = (
                "Rows {} and {} are the same in every feature but have different classes: the data cannot decide "
            )
            warn(RowWarning(message + "between rows like these.", j, i))
            return


def warn_of_order(X: Any, y: Any, name: str = "y") -> None:
    """Warn if X and y, or another column of that name, of pandas, have the same index in different orders."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "equals") and hasattr(theirs, "equals")) or len(ours) != len(theirs):
        return
    if not ours.equals(theirs) and set(ours) == set(theirs):
        warn(
            f"X and {name} have the same index in different orders. Their rows are matched by position, not by index: "
            f"{name}.loc[X.index] brings {name} into the order of X."
        )


def average_equal(values: Array, rows: list[bytes]) -> Array:
    """Replace the values of rows with equal fingerprints by their mean."""
    if len(set(rows)) == len(rows):
        return values
    _, group = np.unique(np.array(rows, dtype=np.dtype((np.void, 16))), return_inverse=True)
    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return np.asarray((sums / np.bincount(group)[:, None])[group])
