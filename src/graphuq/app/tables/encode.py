"""Columns of a table in; a matrix of numbers, and an encoding that applies to new tables, out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphuq.app.tables.read import Table
from graphuq.app.tables.text import COMMA, spelled

Array = NDArray[np.float64]

LARGEST = 1e100  # distances are sums of squares, which overflow at 1e308
MOST_TOLD = 8  # columns or rows listed in a message
SEVERAL_WORDS = 4  # cells with this many words are sentences rather than names
MIN_UNIQUE, NEARLY = 10, 0.9  # a column with this many rows, of which this share is distinct, holds names
MANY_LEVELS = 50  # more than categories usually have

_NUMBER = r"[+-]?[\d.,'’\s]*\d[\d.,'’\s]*"
_UNIT = "numbers with a unit, or with marks between digits"
_WRITTEN_AS = {
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]\d.*)?|\d{1,2}:\d{2}(:\d{2})?": (
        "dates or times",
        ", such as the days since a first date",
    ),
    rf"[$€£¥]?\s*{_NUMBER}(%|[$€£¥]|[A-Z]{{3}})?": (_UNIT, ""),
}

# This many different numbers with one unit are measurements; fewer may be categories, as "2 doors" and "4 doors".
MEASURED = 5

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Feature:
    """Encoding of one column: numbers unchanged, categories one-hot.

    Attributes:
        name: name of the column.
        width: numbers per row: 1, or for a column of an NPZ file the product of its shape.
        levels: levels of a category; empty for numbers.
        fill: value that replaces missing cells; None if these raise an error.
    """

    name: str
    width: int = 1
    levels: tuple[str, ...] = ()
    fill: float | str | None = None

    def encode(self, table: Table, *, ignore_unknown: bool = False) -> Array:
        """Encode this column, shape (n_rows, width or n_levels)."""
        values, gaps = _cells(table, self.name, is_category=bool(self.levels), fitted=True)
        if not self.levels and values[0].size != self.width:
            raise ColumnError(
                f"column {self.name!r} has {values[0].size} numbers a row, and had {self.width} in the fit"
            )
        if gaps.any():
            if self.fill is None:
                raise ColumnError(
                    f"{_gap(table, self.name, gaps)}, and the fit did not say how to impute them: fill them in, or fit again with --impute median"
                )
            values = np.where(gaps, self.fill, values)
        if not self.levels:
            return values.reshape(table.n_rows, -1)
        if not ignore_unknown and (message := self.unknown(table)):
            raise ColumnError(f"{message}, which it did not in the fit", "--unknown ignore")
        return (self._spelled(values)[:, None] == np.array(self.levels)).astype(float)

    def unknown(self, table: Table) -> str:
        """A message on categories that were not in the fit and their rows; "" if there are none."""
        if not self.levels:
            return ""
        text = self._spelled(table.text(self.name))
        rows = np.flatnonzero(~np.isin(text, (*self.levels, "")))
        if not rows.size:
            return ""
        listed = ", ".join(table.called(row) for row in rows[:MOST_TOLD])
        listed += " and others" if len(rows) > MOST_TOLD else ""
        others = " or other new categories" if (text[rows] != text[rows[0]]).any() else ", a new category,"
        return f"column {self.name!r} holds {text[rows[0]]!r}{others} in row{'s' * (len(rows) > 1)} {listed}"

    def _spelled(self, text: NDArray[Any]) -> NDArray[Any]:
        levels = {*self.levels}
        return np.array([spelled(cell, levels) for cell in text], dtype=object)


@dataclass(frozen=True)
class Encoding:
    """Encoding of a table as a matrix: its features, in order."""

    features: tuple[Feature, ...]

    def encode(self, table: Table, *, ignore_unknown: bool = False) -> Array:
        """Encode a table, shape (n_rows, n_numbers); a new category is all zeros, or an error."""
        table.expect(*(feature.name for feature in self.features))
        blocks = each_column(lambda feature: feature.encode(table, ignore_unknown=ignore_unknown), self.features)
        return np.concatenate(blocks, axis=1)

    @property
    def of_single_numbers(self) -> bool:
        """Whether no column holds several numbers per row, such as pixels, which share one scale."""
        return all(feature.width == 1 for feature in self.features)

    def unknown(self, table: Table) -> list[str]:
        """A note for each column with categories that were not in the fit."""
        messages = (feature.unknown(table) for feature in self.features)
        return [f"C{message[1:]}: ignored." for message in messages if message]

    def to_json(self) -> list[dict[str, Any]]:
        """The encoding as JSON values, for `from_json`."""
        return [asdict(feature) for feature in self.features]

    @classmethod
    def from_json(cls, features: list[dict[str, Any]]) -> Encoding:
        """Invert `to_json`."""
        return cls(tuple(Feature(**{**feature, "levels": tuple(feature["levels"])}) for feature in features))


def fit_encoding(
    table: Table,
    names: Sequence[str],
    *,
    categories: Sequence[str] = (),
    answers: Mapping[str, str] | None = None,
    named: bool = False,
    impute: str | None = None,
) -> Encoding:
    """Choose the encoding of each column; raise one error that covers all unusable columns.

    `answers` maps columns that equal the class to the option that suits them better; `named` says whether another
    column names the rows. `impute` replaces missing numbers by the "median" or "mean" of their column, and missing
    categories by the most frequent one; with None they are an error.
    """
    better = answers or {}

    def encode_column(name: str) -> Feature:
        if name in better and name not in categories:
            raise ColumnError(f"column {name!r} holds the class of every labeled row", better[name])
        return _feature(table, name, name in categories, impute)

    return Encoding(tuple(each_column(encode_column, names, named=named)))


def scaling_in_words(encoding: Encoding, X: Array, *, robust: bool) -> str:
    """Describe the units in which features were compared."""
    widths = [len(feature.levels) or feature.width for feature in encoding.features]
    varies = [np.ptp(block, axis=0).any() for block in np.split(X, np.cumsum(widths)[:-1], axis=1)]

    def describe(feature: Feature, differs: bool) -> str:
        if not differs:
            return "constant, of no use to tell rows apart"
        if feature.levels:
            return "of categories turned into 0 and 1"
        return f"of numbers compared {'in robust units' if robust else 'as they are'}"

    counts: Counter[str] = Counter()
    for feature, differs in zip(encoding.features, varies, strict=True):
        counts[describe(feature, differs)] += feature.width
    return "; ".join(f"{n:,} column{'s' if n > 1 else ''} {kind}" for kind, n in counts.items())


class ColumnError(ValueError):
    """A column cannot be used; `options` are command-line options that would help."""

    def __init__(self, what: str, *options: str) -> None:
        super().__init__(what)
        self.options = options


def each_column(work: Callable[[S], T], columns: Sequence[S], *, named: bool = True) -> list[T]:
    """Apply `work` to every column; raise one error on all failures, with options that would help.

    If rows are not `named` yet, --id may be among these options.
    """
    results, problems = [], []
    for column in columns:
        try:
            results.append(work(column))
        except ColumnError as error:
            problems.append(error)
    if not problems:
        return results
    messages = [str(error) for error in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        messages.append(f"and so on, {len(problems)} columns in all")
    options = _one_id(dict.fromkeys(option for error in problems for option in error.options), named)
    categories = [option for option in options if option.startswith("--category")]
    if len(categories) > MOST_TOLD:
        options = ["--category all", *(option for option in options if option not in categories)]
    sentence = "; ".join(messages)
    help_ = f" This would work: {' '.join(options)}." if options else ""
    raise ValueError(f"{sentence[0].upper()}{sentence[1:]}.{help_}")


def _one_id(options: Iterable[str], named: bool) -> list[str]:
    """Keep --id at most once, and not if rows are named already; replace any other by --drop."""
    kept = []
    for option in options:
        is_id = option.startswith("--id ")
        kept.append(f"--drop {option.removeprefix('--id ')}" if is_id and named else option)
        named = named or is_id
    return kept


def _feature(table: Table, name: str, is_category: bool, impute: str | None) -> Feature:
    values, gaps = _cells(table, name, is_category=is_category)
    present = values[~gaps]
    if not present.size:
        raise ColumnError(f"column {name!r} is empty", f"--drop {quote(name)}")
    if impute is None and gaps.any():
        words = " and ".join(repr(word) for word in table.missing_words.get(name, ()))
        counted = f" ({words} counts as missing)" if words else ""
        raise ColumnError(f"{_gap(table, name, gaps)}{counted}", "--impute median")
    if is_category:
        levels, counts = np.unique(present, return_counts=True)
        most_frequent = None if impute is None else str(levels[counts.argmax()])
        return Feature(name, levels=tuple(str(level) for level in levels), fill=most_frequent)
    typical = None if impute is None else float(np.median(present) if impute == "median" else present.mean())
    return Feature(name, width=values[0].size, fill=typical)


def _cells(
    table: Table, name: str, *, is_category: bool, fitted: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The categories or numbers of a column, and a mask of missing ones."""
    if is_category:
        text = table.text(name)
        return text, text == ""
    numbers = _numeric(table, name, fitted=fitted)
    return numbers, np.isnan(numbers)


def _gap(table: Table, name: str, gaps: NDArray[np.bool_]) -> str:
    first = table.called(int(np.argwhere(gaps)[0, 0]))
    return f"column {name!r} has missing values, the first in row {first}"


def _numeric(table: Table, name: str, *, fitted: bool) -> Array:
    """A column as numbers, with NaN for missing cells; raise an error for text and for too large numbers."""
    values = table.column(name)
    if values.dtype.kind != "f":
        wrong = [cell for cell in values if cell and not _is_number(cell)]
        # if there is other text too, numbers with a decimal comma are not what is wrong
        wrong = [cell for cell in wrong if not COMMA.fullmatch(cell)] or wrong
        if wrong and fitted:
            raise ColumnError(f"column {name!r} holds text ({str(wrong[0])[:40]!r}), and held numbers in the fit")
        if wrong:
            raise _text_error(table, name, wrong)
        values = np.array([float(cell) if cell else np.nan for cell in values])
    large = np.abs(values) > LARGEST
    if large.any():
        number = float(values[large][0])
        what = f"the number {number:.3g}" if np.isfinite(number) else "an infinite number"
        raise ColumnError(
            f"column {name!r} holds {what}, too large to compute with (the limit is {LARGEST:g}): correct it"
        )
    return values


def many_levels(n_levels: int, n_rows: int) -> bool:
    """Whether a column of text has too many different values for categories."""
    return n_rows >= MIN_UNIQUE and n_levels > min(NEARLY * n_rows, max(MANY_LEVELS, n_rows / 5))


def _text_error(table: Table, name: str, wrong: list[str]) -> ColumnError:
    """The error for a column with text: stray cells, dates, units, sentences, names or categories."""
    values, drop, category = table.column(name), f"--drop {quote(name)}", f"--category {quote(name)}"
    present, n_levels, example = int(np.sum(values != "")), len({*values} - {""}), repr(str(wrong[0])[:40])
    are_names = present >= MIN_UNIQUE and len(set(values)) > NEARLY * present

    def holds(what: str, option: str = drop) -> ColumnError:
        return ColumnError(f"column {name!r} holds {what}", option)

    if len(wrong) < present / 2:
        many = f"{len(wrong):,} of {present:,} cells"
        if all(re.fullmatch(_NUMBER, cell) for cell in wrong):
            return holds(f"{_UNIT} ({example}) in {many}: write plain numbers instead")
        return holds(f"numbers, and text ({example}) in {many}: empty those")
    for pattern, (what, such_as) in _WRITTEN_AS.items():
        if all(re.fullmatch(pattern, cell) for cell in wrong):
            return holds(f"{what} ({example}): write plain numbers instead{such_as}")
    one_unit = len({re.sub(rf"^{_NUMBER}\s*", "", cell) for cell in wrong}) == 1  # as "5 kg", "7 kg"
    if one_unit and (are_names or len(set(wrong)) >= MEASURED):
        return holds(f"{_UNIT} ({example}): write plain numbers instead")
    if np.median([len(cell.split()) for cell in wrong]) >= SEVERAL_WORDS:
        return holds(
            f"free text ({example}), which is compared by the words in it: turn it into numbers, as scikit-learn's "
            "TfidfVectorizer does, and save those as an NPZ file or fit them in Python; or leave it out"
        )
    if are_names:
        once = len(set(values)) == len(values) == present
        what = f"a different text in {'' if once else 'nearly '}every row ({example}), as names (--id) do"
        return holds(what, f"--id {quote(name)}" if once else drop)
    if many_levels(n_levels, table.n_rows):
        what = f"{n_levels:,} different texts in {table.n_rows:,} rows ({example})"
        return holds(f"{what}: categories ({category}), or to be left out")
    if n_levels == 1:
        return holds(f"one text ({example}), which tells no rows apart")
    return holds(f"text ({example})", category)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # float() would ignore it
