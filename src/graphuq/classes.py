"""A partially labeled column of classes in; the labeled rows, their class indices, and the classes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any
from unicodedata import category, normalize

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import MarkWarning, expect_nodes, expect_numbers, expect_whole_letters
from graphuq._warn import warn

# Marks of unlabeled rows in an array of text: NumPy converts -1 and NaN among text to the last two.
UNLABELED_TEXT = ("", "-1", "nan")
LIKE_NONE = {"", "?", "none", "na", "n/a", "#n/a", "nan", "<na>", "null", "nil"}
LIKE_NONE |= {"missing", "unlabeled", "unlabelled", "unknown"}
# If more than this share of the distinct numbers occur only once, they may be amounts rather than classes.
HARDLY_REPEATED = 0.3
_SEVERAL = (
    "y must hold one class a row, got several: scikit-learn's MultiOutputClassifier takes a column of y for each."
)
_RENAME = "-1 marks unlabeled rows, so no class can be called -1: rename it, to 0 say."


@dataclass(frozen=True, eq=False)
class Labels:
    """The known labels of a table.

    Attributes:
        classes: the sorted classes.
        nodes: indices of the labeled rows, shape (n_labeled,).
        y: their class indices, 0 to n_classes - 1, shape (n_labeled,).
        weights: precision of each label relative to the usual 1, shape (n_labeled,); None if they do not differ.
    """

    classes: NDArray[Any]
    nodes: NDArray[np.int64]
    y: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return f"Labels({len(self.nodes):,} rows, {self.n_classes:,} classes: {names_listed(self.classes)})"

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)

    def counts(self) -> NDArray[np.int64]:
        """Number of labels of each class."""
        return np.bincount(self.y, minlength=self.n_classes)


def read_labels(y: Any, *, classes: NDArray[Any] | None = None, others: bool = False) -> Labels:
    """Read a column of classes in which some rows are unlabeled.

    | values | marks of unlabeled rows |
    |---|---|
    | integers | -1 |
    | floats | NaN, -1 |
    | text | "", "-1", "nan" |
    | objects | None, NaN, pandas.NA, -1, "" |
    | times | NaT |
    | masked arrays | masked elements, or any of the above |

    Args:
        y: one value per row: an array, a list, a pandas or polars series.
        classes: the sorted classes, if they are known already.
        others: whether other classes are allowed; they get the index -1.
    """
    from sklearn.utils.validation import column_or_1d

    dtype: Any = getattr(y, "dtype", None)
    if hasattr(dtype, "na_value") or (hasattr(dtype, "is_integer") and dtype.is_integer() and y.null_count()):
        # pandas extension and polars integer dtypes: missing values would convert booleans and integers to floats
        y = np.fromiter(y, dtype=object, count=len(y))
    elif getattr(dtype, "kind", "") == "T":  # NumPy's text of any length
        y = y.astype(object) if hasattr(dtype, "na_object") else np.array(y.tolist())
    elif str(getattr(y, "type", "")).startswith(("int", "uint", "dictionary")):  # pyarrow's, for the same reason
        y = y.to_pylist()
    if isinstance(y, np.ma.MaskedArray):
        values: Any = y.data.astype(object)
        values[np.ma.getmaskarray(y)] = None
        y = values
    if isinstance(y, list | tuple):
        y = _plain(y)
        mixed = len({isinstance(each, str) for each in y}) > 1  # NumPy would convert everything to text
        if mixed or any(isinstance(each, int) and each >= 2**63 for each in y):  # or these, next to -1, to floats
            y = np.fromiter(y, dtype=object, count=len(y))
    try:
        given = np.asarray(y)
    except ValueError:
        raise TypeError(f"Unknown label type: {_SEVERAL}") from None
    kind = given.dtype.kind
    if kind == "c":
        raise TypeError("Unknown label type: y must hold text or whole numbers, got complex numbers.")
    if given.ndim == 2 and given.shape[1] > 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {given.shape}: {_SEVERAL}")
    if (
        kind == "O"
        and given.ndim
        and any(np.iterable(each) and not isinstance(each, str | bytes) for each in given.ravel())
    ):
        raise TypeError(f"Unknown label type: {_SEVERAL}")
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
        # NumPy would keep dates and times as objects; those with a time zone stay objects
        times = all(isinstance(each, date) and getattr(each, "tzinfo", None) is None for each in values)
        values = np.array(_plain(values.tolist()), dtype=np.datetime64 if times else None)
    _refuse_amounts(values)
    if classes is not None and _family(values) != _family(classes):
        raise ValueError(
            f"The classes given are {_family(values)}, such as {values[0].item()!r}, and those of fit are {_family(classes)}: "
            f"{names_listed(classes)}."
        )
    present = np.unique(values)
    if classes is None:
        _warn_of_words(values, present, len(column))
        for message in alike(present, "Classes"):
            warn(message)
        if len(present) == 1:
            why = f" {_RENAME}" if minus_one.any() else ""
            raise ValueError(f"Only one class, {present[0]!s}, is labeled, and at least two are needed.{why}")
        classes = present
        _warn_of_zeros(column, minus_one)
    elif (unknown := present[~np.isin(present, classes)]).size:
        new = f"{unknown[0].item()!r} is none of the classes of fit, {names_listed(classes)}"
        if not others:
            raise ValueError(f"{new}: fit with a labeled row of it first.")
        warn(f"{new}: no answer can be right there.")
    return Labels(classes, np.flatnonzero(labeled), _indices(values, classes))


def _family(values: NDArray[Any]) -> str:
    """What classes are: values of two families are never equal, and NumPy would compare them as text."""
    return {"U": "text", "m": "durations", "M": "times", "O": "objects"}.get(values.dtype.kind, "numbers")


def _indices(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each value in the sorted classes, -1 for other values; by sorting, as numbers may exceed 2^63."""
    return np.where(np.isin(values, classes, kind="sort"), np.searchsorted(classes, values), -1)


def relabel(labels: Labels, nodes: ArrayLike, y: Any, *, n_rows: int) -> Labels:
    """Replace the labels of some rows by `y`, or remove them where `y` marks a row as unlabeled."""
    rows = expect_nodes(nodes, n_rows, "nodes", once=True)
    if not rows.size:
        raise ValueError("nodes must be one or more row numbers, got none.")
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
        raise ValueError("Only one class would stay labeled, and at least two are needed.")
    weights = None
    if labels.weights is not None:  # new and changed labels get the usual weight
        weight = np.ones(n_rows)
        stays = label[labels.nodes] == labels.y
        weight[labels.nodes[stays]] = labels.weights[stays]
        weights = weight[labeled]
    return Labels(labels.classes, labeled, label[labeled], weights)


def weighted(labels: Labels, sample_weight: Any, n_rows: int) -> Labels:
    """The labels with a weight for each row of the table; a label of weight 0 is left out."""
    if sample_weight is None:
        return labels
    weights = np.asarray(expect_numbers(sample_weight, "sample_weight"))
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must be one number for each of {n_rows:,} rows, got shape {weights.shape}."
        )
    weights = weights[labels.nodes]
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight of labeled rows must be finite numbers, 0 or above.")
    kept = weights > 0
    if (missing := np.setdiff1d(labels.y, labels.y[kept])).size:
        raise ValueError(
            f"All labels of class {labels.classes[missing[0]]!s} have zero sample_weight: a class needs one."
        )
    return Labels(labels.classes, labels.nodes[kept], labels.y[kept], weights[kept])


def holds_mark(values: Any) -> bool:
    """Whether any of the values, or of several arrays of values, marks an unlabeled row."""
    return values is not None and len(values) > 0 and bool(np.any(_gaps(np.hstack(values))))


def names_listed(names: NDArray[Any] | list[str], most: int = 8) -> str:
    """Quoted names, such as those of classes, as a list in a sentence; at most `most` of them."""
    quoted = [repr(name) for name in np.asarray(names)[:most].tolist()]
    return listed(quoted if len(names) <= most else [", ".join(quoted), f"{len(names) - most} more"])


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def alike(names: Iterable[Any], what: str) -> list[str]:
    """A sentence for each group of names that differ only in capitals, spaces or encoding."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in map(str, names):
        letters = normalize("NFC", _squeezed(name))  # composes letters with combining accents
        visible = "".join(each for each in letters if category(each) != "Cf")
        groups[visible].append(name)
    return [
        f"{what} {names_listed(group)} differ only in {differing(group)}: if they are one, write them alike."
        for group in groups.values()
        if len(group) > 1
    ]


def differing(names: Iterable[str]) -> str:
    """How the names in a group of `alike` differ."""
    same_letters = len(set(map(_squeezed, names))) == 1
    return "capitals or spaces" if same_letters else "capitals, spaces or how letters are encoded"


def _squeezed(name: str) -> str:
    return "".join(name.casefold().split())


def _refuse_amounts(values: NDArray[Any]) -> None:
    """Raise unless classes are text, integers, booleans or times; warn of integers that may be amounts."""
    kind = values.dtype.kind
    if kind == "S":
        raise TypeError("The classes in y are bytes: decode them, as in y.astype(str).")
    if kind not in "biufUmM" or values.ndim != 1:
        raise TypeError(f"Unknown label type: y must hold text or whole numbers, one a row, got {values.dtype}.")
    if kind == "U":
        expect_whole_letters(values, "A class in y")
    if kind == "f" and (values % 1 != 0).any():
        raise ValueError(
            f"Unknown label type: continuous. y holds {values[values % 1 != 0][0].item()}, and classes are text or "
            "whole numbers: cut amounts into ranges first."
        )
    counts = np.unique(values, return_counts=True)[1]
    if kind in "iuf" and len(counts) > 20 and (counts == 1).mean() > HARDLY_REPEATED:
        warn(
            f"y holds {len(counts)} different numbers in {len(values)} labels: each is taken as a class. If they are "
            "amounts, cut them into ranges first.",
        )


def _warn_of_words(values: NDArray[Any], classes: NDArray[Any], n_rows: int) -> None:
    """Warn of a class named like a missing value, or equal to -1 in unsigned integers, given the labels of all rows."""
    if values.dtype.kind == "u":
        most = np.iinfo(values.dtype).max
        suspect = [name for name in classes if name == most and np.count_nonzero(values == most) > n_rows / 2]
    else:
        suspect = [name for name in classes if isinstance(name, str) and name.strip().lower() in LIKE_NONE]
    for name in suspect:
        warn(MarkWarning(name.item(), int(np.count_nonzero(values == name))))


def _warn_of_zeros(column: NDArray[Any], minus_one: NDArray[np.bool_]) -> None:
    """Warn of -1, 0 and 1 if most rows are 0, which may mean unlabeled, or -1 is rarest and may be a class."""
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
    """Masks of the rows with a missing value and of those with -1."""
    kind = column.dtype.kind
    if kind == "O":
        missing = np.array([is_missing(value) for value in column], dtype=bool)
        minus_one = np.array(
            [not gone and value in (-1, "-1") for value, gone in zip(column, missing, strict=True)], dtype=bool
        )
        return missing, minus_one
    if kind in "US":
        text = column.astype(str)
        return np.isin(text, [mark for mark in UNLABELED_TEXT if mark != "-1"]), text == "-1"
    if kind in "mM":  # times are never -1
        return np.isnat(column), np.zeros(column.shape, dtype=bool)
    missing = np.isnan(column) if kind == "f" else np.zeros(column.shape, dtype=bool)
    return missing, column == -1


def _plain(values: Iterable[Any]) -> list[Any]:
    """Convert str subclasses to str: of a str Enum, NumPy would take the name, truncated to the value's length."""
    plain = [str.__str__(each) if isinstance(each, str) else each for each in values]
    for each in plain:
        if isinstance(each, str) and each.endswith("\0"):
            raise ValueError(f"A class in y ends with a zero byte, {each[:60]!r}, which NumPy drops: remove it.")
    return plain


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, NA, NaT or \"\"."""
    if value is None or (isinstance(value, str) and value == ""):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True
