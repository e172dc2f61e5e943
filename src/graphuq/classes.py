"""A column of classes with gaps in; the labeled rows, the number of their class, and the classes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from traceback import walk_stack
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._warn import warn

# What marks an unlabeled row in an array of text: NumPy turns -1 and NaN beside text into the last two.
UNLABELED_TEXT = ("", "-1", "nan")
LIKE_NONE = {"", "?", "none", "na", "n/a", "#n/a", "nan", "<na>", "null", "nil"}
LIKE_NONE |= {"missing", "unlabeled", "unlabelled", "unknown"}
_RENAME = "-1 marks unlabeled rows, so no class can be called -1: rename it, to 0 say."


@dataclass(frozen=True, eq=False)
class Labels:
    """The known labels of a table.

    Attributes:
        classes: the classes in order.
        nodes: the labeled rows, shape (n_labeled,).
        y: their classes as numbers 0 to n_classes - 1, shape (n_labeled,).
    """

    classes: NDArray[Any]
    nodes: NDArray[np.int64] = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)

    def counts(self) -> NDArray[np.int64]:
        """Labels of each class."""
        return np.bincount(self.y, minlength=self.n_classes)


def read_labels(y: Any, *, classes: NDArray[Any] | None = None) -> Labels:
    """Split a column into labeled rows and gaps.

    | values | what marks an unlabeled row |
    |---|---|
    | integers | -1 |
    | floats | NaN, -1 |
    | text | "", "-1", "nan" |
    | objects | None, NaN, pandas.NA, -1, "" |
    | times | NaT |
    | masked arrays | what is masked, or any of the above |

    Args:
        y: one value a row: an array, a list, a pandas or polars series.
        classes: the classes, where they are known already.
    """
    from sklearn.utils.validation import column_or_1d

    if hasattr(getattr(y, "dtype", None), "na_value"):  # of pandas: gaps would turn booleans into floats
        y = y.to_numpy(dtype=object)
    if isinstance(y, np.ma.MaskedArray):
        values: Any = y.data.astype(object)
        values[np.ma.getmaskarray(y)] = None
        y = values
    try:
        kind = np.asarray(y).dtype.kind
    except ValueError:
        raise TypeError("Unknown label type: y must hold one text or whole number a row, got several.") from None
    if kind == "c":
        raise TypeError("Unknown label type: y must hold text or whole numbers, got complex numbers.")
    column = column_or_1d(y, warn=True)
    if column.dtype.kind == "f" and np.isinf(column).any():
        raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
    missing, minus_one = _gaps(column)
    if missing.any() and minus_one.any():
        raise ValueError(f"y marks unlabeled rows by missing values and holds -1 as well. {_RENAME}")
    labeled = ~(missing | minus_one)
    if not labeled.any():
        if classes is not None:
            return Labels(classes, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        raise ValueError("No row is labeled: give at least one row of each of two classes or more.")
    values = column[labeled]
    if values.dtype.kind == "O":
        kinds = {"text" if isinstance(value, str) else "numbers" for value in values}
        if len(kinds) > 1:
            raise ValueError("The classes in y are text in some rows and numbers in others: use one of the two.")
        values = np.array(values.tolist())
    _refuse_amounts(values)
    found = np.unique(values)
    if classes is None:
        _warn_of_words(column, found)
        for told in alike(found, "Classes"):
            warn(told)
        classes = _several_classes(found, bool(minus_one.any()))
        _warn_of_zeros(column, minus_one)
    elif not np.isin(found, classes).all():
        new = found[~np.isin(found, classes)][0]
        raise ValueError(f"{new.item()!r} is none of the classes of fit, {in_words(classes)}.")
    return Labels(classes, np.flatnonzero(labeled), np.searchsorted(classes, values))


def relabel(labels: Labels, nodes: ArrayLike, y: Any, *, n_rows: int) -> Labels:
    """The labels with those of some rows replaced by `y`, or taken away where `y` has a gap.

    Args:
        labels: those before.
        nodes: row numbers, from 0.
        y: their classes.
        n_rows: rows there are.
    """
    rows = np.atleast_1d(np.asarray(nodes))
    if rows.ndim != 1 or not rows.size:
        raise ValueError(f"nodes must be a list of one or more row numbers, got the shape {rows.shape}.")
    if not np.issubdtype(rows.dtype, np.integer) or rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"nodes must be row numbers of fit, 0 to {n_rows - 1}.")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("nodes must differ: a row has one class.")
    classes = [y] if np.ndim(y) == 0 else y
    if len(rows) != len(classes):
        raise ValueError(f"There are {len(rows)} nodes and {len(classes)} classes: give one class for each node.")
    new = read_labels(classes, classes=labels.classes)
    label = np.full(n_rows, -1)
    label[labels.nodes] = labels.y
    label[rows] = -1
    label[rows[new.nodes]] = new.y
    labeled = np.flatnonzero(label >= 0)
    if len(np.unique(label[labeled])) < 2:
        raise ValueError("Only one class would stay labeled, and two are needed to tell apart.")
    return Labels(labels.classes, labeled, label[labeled])


def refuse_one_versus_rest(labels: Labels, n_rows: int) -> None:
    """scikit-learn's OneVsRestClassifier turns -1 into a class: everything is labeled then, and nothing is left to find."""
    if len(labels.nodes) < n_rows or labels.n_classes > 2:
        return
    if any(frame.f_globals.get("__name__") == "sklearn.multiclass" for frame, _ in walk_stack(None)):
        raise TypeError(
            "GraphClassifier takes any number of classes itself: leave out the wrapper of sklearn.multiclass, which "
            "would count the rows marked -1 as a class."
        )


def in_words(classes: NDArray[Any], most: int = 8) -> str:
    """Names of classes as a list in a sentence."""
    names = [repr(each) for each in classes[:most].tolist()]
    if len(classes) > most:
        return f"{', '.join(names)} and {len(classes) - most} more"
    return listed(names)


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def alike(names: Iterable[Any], what: str) -> list[str]:
    """A sentence for each group of names that differ only in capitals or spaces."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups["".join(str(name).casefold().split())].append(str(name))
    return [
        f"{what} {in_words(np.array(group))} differ only in capitals or spaces: if they are one, write them alike."
        for group in groups.values()
        if len(group) > 1
    ]


def _several_classes(found: NDArray[Any], minus_one: bool) -> NDArray[Any]:
    if len(found) == 1:
        why = f" {_RENAME}" if minus_one else ""
        raise ValueError(f"Only one class, {found[0]!s}, is labeled, and two are needed to tell apart.{why}")
    return found


def _refuse_amounts(values: NDArray[Any]) -> None:
    """Classes are text, whole numbers, booleans or times; whole numbers that hardly repeat may be amounts."""
    kind = values.dtype.kind
    if kind == "S":
        raise TypeError("The classes in y are bytes: decode them, as in y.astype(str).")
    if kind not in "biufUmM" or values.ndim != 1:
        raise TypeError(f"Unknown label type: y must hold text or whole numbers, one a row, got {values.dtype}.")
    if kind == "f" and (values % 1 != 0).any():
        raise ValueError(
            f"Unknown label type: continuous. y holds {values[values % 1 != 0][0].item()}, and classes are text or "
            "whole numbers: cut amounts into ranges first."
        )
    n_different = len(np.unique(values))
    if kind in "iuf" and n_different > max(20, len(values) / 2):
        warn(
            f"y holds {n_different} different numbers in {len(values)} labels: each is taken as a class. If they are "
            "amounts, cut them into ranges first.",
        )


def _warn_of_words(column: NDArray[Any], classes: NDArray[Any]) -> None:
    """A class that is called as if it were none, or is what -1 becomes among numbers without a sign."""
    if column.dtype.kind == "u":
        most = np.iinfo(column.dtype).max
        odd = [name for name in classes if name == most and np.count_nonzero(column == most) > len(column) / 2]
    else:
        odd = [name for name in classes if isinstance(name, str) and name.strip().lower() in LIKE_NONE]
    for name in odd:
        warn(
            f"y holds {name.item()!r} in {np.count_nonzero(column == name):,} rows, which are taken as a class. If they are "
            "unlabeled, leave them empty (None).",
        )


def _warn_of_zeros(column: NDArray[Any], minus_one: NDArray[np.bool_]) -> None:
    """-1, 0 and 1, with 0 in most rows, or -1 in the fewest: 0 may be meant as unknown, or all three as classes."""
    if not minus_one.any() or column.dtype.kind not in "iufUO":
        return
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        return
    if not np.isin(numbers, (-1, 0, 1)).all():
        return
    zeros, ones = (np.count_nonzero(numbers == value) for value in (0, 1))
    if zeros > len(column) / 2 or np.count_nonzero(minus_one) < min(zeros, ones):
        warn(
            f"y holds -1, 0 and 1, and 0 in {zeros} of {len(column)} rows. The rows of -1 were taken as unlabeled, and "
            "0 and 1 as the classes. If 0 marks the unlabeled rows instead, leave them empty (None) and rename the class -1; "
            "if all three are classes, rename it too.",
        )


def _gaps(column: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are missing, and which hold -1."""
    kind = column.dtype.kind
    if kind == "O":
        missing = np.array([_is_missing(value) for value in column], dtype=bool)
        minus_one = np.array(
            [not gone and value in (-1, "-1") for value, gone in zip(column, missing, strict=True)], dtype=bool
        )
        return missing, minus_one
    if kind in "US":
        text = column.astype(str)
        return np.isin(text, [mark for mark in UNLABELED_TEXT if mark != "-1"]), text == "-1"
    if kind in "mM":  # times: not one of them is -1
        return np.isnat(column), np.zeros(column.shape, dtype=bool)
    missing = np.isnan(column) if kind == "f" else np.zeros(column.shape, dtype=bool)
    return missing, column == -1


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, str) and value == ""):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True
