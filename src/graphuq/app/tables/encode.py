"""Columns of a table in; a matrix of numbers, and the same map for new tables, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app.tables.read import Table

Array = NDArray[np.float64]

SCALES = ("auto", "standard", "none")
IMPUTES = ("median", "mean")
LARGEST = 1e100  # distances between rows are sums of squares, which end at 1e308


@dataclass(frozen=True)
class Feature:
    """How one column becomes numbers.

    ``(x - center) / scale``, or for a category a 0 or 1 for each of its levels.

    Attributes:
        name: of the column.
        width: numbers a row: 1, or for a column of an NPZ file the product of its shape.
        levels: of a category; empty for numbers.
        fill: what a missing cell becomes, or None where missing cells are refused.
        center, scale: of numbers.
    """

    name: str
    width: int = 1
    levels: tuple[str, ...] = ()
    fill: float | str | None = None
    center: float = 0.0
    scale: float = 1.0

    def encode(self, table: Table) -> Array:
        """The numbers of this column, shape (n_rows, width or n_levels)."""
        return self._categories(table) if self.levels else self._numbers(table)

    def _numbers(self, table: Table) -> Array:
        values = _numeric(table, self.name, "in the fit it held numbers").reshape(table.n_rows, -1)
        if values.shape[1] != self.width:
            raise ValueError(
                f"{self.name!r} has {values.shape[1]} numbers a row, and had {self.width} in the fit."
            )
        gaps = np.isnan(values)
        if gaps.any():
            values = np.where(gaps, self._filler(np.any(gaps, axis=1)), values)
        with np.errstate(over="ignore"):
            return _not_too_large(self.name, (values - self.center) / self.scale)

    def _filler(self, gaps: Any) -> float | str:
        if self.fill is None:
            raise ValueError(
                f"{_gap(self.name, gaps)}, and it was not said in the fit how to impute them: fill them in, or fit "
                "again with --impute median."
            )
        return self.fill

    def _categories(self, table: Table) -> Array:
        values = table.text(self.name)
        if (values == "").any():
            values = np.where(values == "", self._filler(values == ""), values)
        unknown = ~np.isin(values, self.levels)
        if unknown.any():
            raise ValueError(f"Column {self.name!r} holds {values[unknown][0]!r}, which it did not in the fit.")
        return (values[:, None] == np.array(self.levels)).astype(float)


@dataclass(frozen=True)
class Encoding:
    """How a table becomes a matrix: its features, in order."""

    features: tuple[Feature, ...]

    def encode(self, table: Table) -> Array:
        """The matrix, shape (n_rows, n_numbers)."""
        return np.concatenate([feature.encode(table) for feature in self.features], axis=1)

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
    scale: str = "auto",
    impute: str | None = None,
) -> Encoding:
    """Decide how columns become numbers.

    Args:
        table: the data.
        names: the columns to use.
        categories: those of them that hold categories.
        scale: "standard" brings each column of numbers to mean 0 and variance 1, "none" leaves them;
            "auto" is standard, except for columns of many numbers a row (pixels), whose scales belong together.
        impute: "median" or "mean" of a column for its missing numbers (its most frequent value for a
            category), or None to refuse them.
    """
    return Encoding(tuple(_feature(table, name, name in categories, scale, impute) for name in names))


def scaling_in_words(encoding: Encoding, X: Array) -> str:
    """How features were brought to scale, in words."""
    widths = [len(each.levels) or each.width for each in encoding.features]
    varies = [np.ptp(block, axis=0).any() for block in np.split(X, np.cumsum(widths)[:-1], axis=1)]

    def what(feature: Feature, differs: bool) -> str:
        if not differs:
            return "constant, which tells no rows apart"
        if feature.levels:
            return "of categories turned into 0 and 1"
        return "scaled to mean 0 and variance 1" if feature.scale != 1.0 else "of numbers used as they are"

    counts = Counter(map(what, encoding.features, varies))
    return "; ".join(f"{n} column{'s' if n > 1 else ''} {told}" for told, n in counts.items())


def _feature(table: Table, name: str, is_category: bool, scale: str, impute: str | None) -> Feature:
    if is_category:
        text = table.text(name)
        levels, counts = np.unique(text[text != ""], return_counts=True)
        if not len(levels):
            raise ValueError(f"Column {name!r} is empty: leave it out (--drop).")
        if impute is None:
            _refuse_gaps(table, name, text == "")
        fill = None if impute is None else str(levels[counts.argmax()])
        return Feature(name, levels=tuple(str(level) for level in levels), fill=fill)
    values = _numeric(
        table,
        name,
        f"call it a category (--category {name!r}, or --category all), leave it out (--drop {name!r}), "
        f"or let it name the rows (--id {name!r})",
    )
    width = int(np.prod(values.shape[1:]))
    present = values[~np.isnan(values)]
    if not present.size:
        raise ValueError(f"Column {name!r} is empty: leave it out (--drop).")
    middle = None
    if impute is None:
        _refuse_gaps(table, name, np.isnan(values).reshape(table.n_rows, -1).any(axis=1))
    else:
        middle = float(np.median(present) if impute == "median" else present.mean())
    center, spread = 0.0, 1.0
    if scale == "standard" or (scale == "auto" and values.ndim == 1):
        filled = values if middle is None else np.where(np.isnan(values), middle, values)
        center = float(filled.mean())
        if np.ptp(filled):  # the deviation of numbers that are all the same is not 0 but rounding
            spread = float(filled.std()) or 1.0
    return Feature(name, width=width, fill=middle, center=center, scale=spread)


def _gap(name: str, gaps: Any) -> str:
    return f"Column {name!r} has missing values, the first in row {int(np.argmax(gaps)) + 1}"


def _refuse_gaps(table: Table, name: str, gaps: Any) -> None:
    if not np.any(gaps):
        return
    words = " and ".join(repr(word) for word in table.missing_words.get(name, ()))
    counted = f" ({words} counts as missing)" if words else ""
    raise ValueError(f"{_gap(name, gaps)}{counted}: fill them in, or have them imputed (--impute median).")


def _numeric(table: Table, name: str, advice: str) -> Array:
    """A column as numbers, NaN where a cell is missing; `advice` is for one that holds text."""
    values = table.column(name)
    if values.dtype.kind != "f":
        wrong = next((cell for cell in values if cell and not _is_number(cell)), None)
        if wrong is not None:
            raise ValueError(f"Column {name!r} holds text ({str(wrong)[:40]!r}): {advice}.")
        values = np.array([float(cell) if cell else np.nan for cell in values])
    return _not_too_large(name, values)


def _not_too_large(name: str, values: Array) -> Array:
    """The same numbers, or an error that names the column; NaN may stay."""
    large = np.abs(values) > LARGEST
    if large.any():
        number = float(values[large][0])
        what = f"the number {number:.3g}" if np.isfinite(number) else "an infinite number"
        raise ValueError(
            f"Column {name!r} holds {what}, too large to compute with (the limit is {LARGEST:g}): mend it, or leave "
            "its cell empty."
        )
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which float() reads over
