"""Columns of a table in; a matrix of numbers, and the same map for new tables, out."""

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

Array = NDArray[np.float64]

LARGEST = 1e100  # distances between rows are sums of squares, which end at 1e308
MOST_TOLD = 8  # columns, or rows, that a sentence names
SEVERAL_WORDS = 4  # a cell, and it is a sentence rather than the name of something
MIN_UNIQUE, NEARLY = 10, 0.9  # so many rows, of which such a share differs, hold names

_NUMBER = r"[+-]?[\d.,'’\s]*\d[\d.,'’\s]*"
_UNIT = "numbers with a unit, or with marks between digits"
_WRITTEN_AS = {
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ]\d.*)?|\d{1,2}:\d{2}(:\d{2})?": (
        "dates or times",
        ", such as the days since a first date",
    ),
    rf"[$€£¥]?\s*{_NUMBER}(%|[$€£¥]|[A-Z]{{3}})?": (_UNIT, ""),
}

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Feature:
    """How one column becomes numbers: as they are, or for a category a 0 or 1 for each of its levels.

    Attributes:
        name: of the column.
        width: numbers a row: 1, or for a column of an NPZ file the product of its shape.
        levels: of a category; empty for numbers.
        fill: what a missing cell becomes, or None where missing cells are refused.
    """

    name: str
    width: int = 1
    levels: tuple[str, ...] = ()
    fill: float | str | None = None

    def encode(self, table: Table, *, ignore_unknown: bool = False) -> Array:
        """The numbers of this column, shape (n_rows, width or n_levels)."""
        values, gaps = _cells(table, self.name, is_category=bool(self.levels), fitted=True)
        if not self.levels and values[0].size != self.width:
            raise ColumnError(
                f"column {self.name!r} has {values[0].size} numbers a row, and had {self.width} in the fit"
            )
        if gaps.any():
            if self.fill is None:
                raise ColumnError(
                    f"{_gap(table, self.name, gaps)}, and it was not said in the fit how to impute them: fill them in, or fit again with --impute median"
                )
            values = np.where(gaps, self.fill, values)
        if not self.levels:
            return values.reshape(table.n_rows, -1)
        if not ignore_unknown and (told := self.unknown(table)):
            raise ColumnError(f"{told}, which it did not in the fit", "--unknown ignore")
        return (values[:, None] == np.array(self.levels)).astype(float)

    def unknown(self, table: Table) -> str:
        """Which categories that the fit had not a column holds, and in which rows; "" where there are none."""
        if not self.levels:
            return ""
        text = table.text(self.name)
        rows = np.flatnonzero(~np.isin(text, (*self.levels, "")))
        if not rows.size:
            return ""
        told = ", ".join(table.called(row) for row in rows[:MOST_TOLD])
        told += " and others" if len(rows) > MOST_TOLD else ""
        return f"column {self.name!r} holds {text[rows[0]]!r} or other new categories in row{'s' * (len(rows) > 1)} {told}"


@dataclass(frozen=True)
class Encoding:
    """How a table becomes a matrix: its features, in order."""

    features: tuple[Feature, ...]

    def encode(self, table: Table, *, ignore_unknown: bool = False) -> Array:
        """The matrix, shape (n_rows, n_numbers); a category that the fit had not is 0 in all, or refused."""
        names = [feature.name for feature in self.features]
        for name in names:
            table.expect(name, besides=names)
        blocks = each_column(lambda feature: feature.encode(table, ignore_unknown=ignore_unknown), self.features)
        return np.concatenate(blocks, axis=1)

    @property
    def of_single_numbers(self) -> bool:
        """Whether no column holds many numbers a row, such as pixels, whose scales belong together."""
        return all(feature.width == 1 for feature in self.features)

    def unknown(self, table: Table) -> list[str]:
        """For each column with categories that the fit had not: which, and in which rows."""
        found = (feature.unknown(table) for feature in self.features)
        return [f"C{told[1:]}: ignored." for told in found if told]

    def to_json(self) -> list[dict[str, Any]]:
        """For `from_json`."""
        return [asdict(feature) for feature in self.features]

    @classmethod
    def from_json(cls, features: list[dict[str, Any]]) -> Encoding:
        """The encoding that `to_json` described."""
        return cls(tuple(Feature(**{**each, "levels": tuple(each["levels"])}) for each in features))


def fit_encoding(
    table: Table,
    names: Sequence[str],
    *,
    categories: Sequence[str] = (),
    answers: Mapping[str, str] | None = None,
    named: bool = False,
    impute: str | None = None,
) -> Encoding:
    """Decide how columns become numbers.

    `answers` are columns that are the class itself, and the option that each is better given as; `named` says whether
    another column names the rows. For missing numbers `impute` takes the "median" or "mean" of a column, and for a category
    its most frequent value; None refuses them.
    """
    better = answers or {}

    def made(name: str) -> Feature:
        if name in better and name not in categories:
            raise ColumnError(f"column {name!r} holds the class of every labeled row", better[name])
        return _feature(table, name, name in categories, impute)

    return Encoding(tuple(each_column(made, names, named=named)))


def scaling_in_words(encoding: Encoding, X: Array, *, robust: bool) -> str:
    """In which units features were compared, in words."""
    widths = [len(each.levels) or each.width for each in encoding.features]
    varies = [np.ptp(block, axis=0).any() for block in np.split(X, np.cumsum(widths)[:-1], axis=1)]

    def what(feature: Feature, differs: bool) -> str:
        if not differs:
            return "constant, which tells no rows apart"
        if feature.levels:
            return "of categories turned into 0 and 1"
        return f"of numbers compared {'in robust units' if robust else 'as they are'}"

    counts = Counter(map(what, encoding.features, varies))
    return "; ".join(f"{n} column{'s' if n > 1 else ''} {told}" for told, n in counts.items())


class ColumnError(ValueError):
    """What is wrong with one column, and the options that would help."""

    def __init__(self, what: str, *options: str) -> None:
        super().__init__(what)
        self.options = options


def each_column(work: Callable[[S], T], columns: Sequence[S], *, named: bool = True) -> list[T]:
    """The work on every column, or one sentence on all that cannot be used; one of them may name rows without a name."""
    done, problems = [], []
    for each in columns:
        try:
            done.append(work(each))
        except ColumnError as error:
            problems.append(error)
    if not problems:
        return done
    told = [str(error) for error in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        told.append(f"and so on, {len(problems)} columns in all")
    options = _one_id(dict.fromkeys(option for error in problems for option in error.options), named)
    categories = [option for option in options if option.startswith("--category")]
    if len(categories) > MOST_TOLD:
        options = ["--category all", *(option for option in options if option not in categories)]
    sentence = "; ".join(told)
    help_ = f" This would work: {' '.join(options)}." if options else ""
    raise ValueError(f"{sentence[0].upper()}{sentence[1:]}.{help_}")


def _one_id(options: Iterable[str], named: bool) -> list[str]:
    """The same with --id at most once, and not where rows have names: other columns of names are left out."""
    found = []
    for option in options:
        is_id = option.startswith("--id ")
        found.append(f"--drop {option.removeprefix('--id ')}" if is_id and named else option)
        named = named or is_id
    return found


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
        usual = None if impute is None else str(levels[counts.argmax()])
        return Feature(name, levels=tuple(str(level) for level in levels), fill=usual)
    middle = None if impute is None else float(np.median(present) if impute == "median" else present.mean())
    return Feature(name, width=values[0].size, fill=middle)


def _cells(
    table: Table, name: str, *, is_category: bool, fitted: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The categories or numbers of a column, and which of them are missing."""
    if is_category:
        text = table.text(name)
        return text, text == ""
    numbers = _numeric(table, name, fitted=fitted)
    return numbers, np.isnan(numbers)


def _gap(table: Table, name: str, gaps: NDArray[np.bool_]) -> str:
    first = table.called(int(np.argwhere(gaps)[0, 0]))
    return f"column {name!r} has missing values, the first in row {first}"


def _numeric(table: Table, name: str, *, fitted: bool) -> Array:
    """A column as numbers, none of them too large to compute with; NaN where a cell is missing."""
    values = table.column(name)
    if values.dtype.kind != "f":
        wrong = [cell for cell in values if cell and not _is_number(cell)]
        if wrong and fitted:
            raise ColumnError(f"column {name!r} holds text ({str(wrong[0])[:40]!r}), and held numbers in the fit")
        if wrong:
            raise _text(table, name, wrong)
        values = np.array([float(cell) if cell else np.nan for cell in values])
    large = np.abs(values) > LARGEST
    if large.any():
        number = float(values[large][0])
        what = f"the number {number:.3g}" if np.isfinite(number) else "an infinite number"
        raise ColumnError(
            f"column {name!r} holds {what}, too large to compute with (the limit is {LARGEST:g}): mend it"
        )
    return values


def _text(table: Table, name: str, wrong: list[str]) -> ColumnError:
    """What text in a column may be: a few cells among numbers, names of rows, or categories."""
    values, drop = table.column(name), f"--drop {quote(name)}"
    present, told = int(np.sum(values != "")), repr(str(wrong[0])[:40])
    if len(wrong) < present / 2:
        many = f"{len(wrong):,} of {present:,} cells"
        if all(re.fullmatch(_NUMBER, cell) for cell in wrong):
            return ColumnError(
                f"column {name!r} holds {_UNIT} ({told}) in {many}: write plain numbers instead", drop
            )
        return ColumnError(f"column {name!r} holds numbers, and text ({told}) in {many}: empty those", drop)
    names = present >= MIN_UNIQUE and len(set(values)) > NEARLY * present
    for pattern, (what, such_as) in _WRITTEN_AS.items():
        if all(re.fullmatch(pattern, cell) for cell in wrong):
            return ColumnError(
                f"column {name!r} holds {what} ({told}): write plain numbers instead{such_as}", drop
            )
    if names and len({re.sub(f"^{_NUMBER}", "", cell) for cell in wrong}) == 1:  # as "5 kg", "7 kg"
        return ColumnError(f"column {name!r} holds {_UNIT} ({told}): write plain numbers instead", drop)
    if np.median([len(cell.split()) for cell in wrong]) >= SEVERAL_WORDS:
        return ColumnError(
            f"column {name!r} holds free text ({told}), which is compared by the words in it: turn it into numbers, as "
            "scikit-learn's TfidfVectorizer does, and save those as an NPZ file or fit them in Python; or leave it out",
            drop,
        )
    if names:
        once = len(set(values)) == len(values) == present
        return ColumnError(
            f"column {name!r} holds another text in {'' if once else 'nearly '}every row ({told}), as names (--id) do",
            f"--id {quote(name)}" if once else drop,
        )
    if len({*values, ""}) == 2:
        return ColumnError(f"column {name!r} holds one text ({told}), which tells no rows apart", drop)
    return ColumnError(f"column {name!r} holds text ({told})", f"--category {quote(name)}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which float() reads over
