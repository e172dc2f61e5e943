"""A table and the roles of its columns in; notes, never errors, on what a user may have overlooked out."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app.tables.encode import MIN_UNIQUE, many_levels
from graphuq.app.tables.read import Table
from graphuq.classes import Labels, alike

ENOUGH_LABELS = 10  # with fewer, a column may separate the classes by chance


def notes_on(
    table: Table, features: Sequence[str], categories: Sequence[str], labels: Labels, *, named: bool = False
) -> list[str]:
    """Notes on columns that number or name the rows, leak the class, or spell one category in several ways."""
    notes = []
    for name in features:
        column = table.column(name)
        if column.ndim > 1:
            continue
        if _is_counter(column):
            naming = "" if named else f"let it name them (--id {quote(name)}), or "
            notes.append(
                f"Column {name!r} counts the rows, which says nothing about them: {naming}leave it out (--drop {quote(name)})."
            )
        elif gives_away(table.text(name), labels):
            notes.append(
                f"Column {name!r} tells the class of every labeled row by itself: if it was made from the answer, leave "
                f"it out (--drop {quote(name)})."
            )
        if name in categories:
            levels = np.unique(column[column != ""] if column.dtype.kind == "O" else table.text(name))
            notes += alike(levels, f"Categories of column {name!r},")
            if many_levels(len(levels), table.n_rows):
                notes.append(
                    f"Column {name!r} has {len(levels):,} categories in {table.n_rows:,} rows: names, or numbers with a unit?"
                )
    return notes


def filled_in(table: Table, names: Sequence[str]) -> list[str]:
    """A note on the number of imputed cells, and of rows and columns with them."""
    columns = [table.column(name).reshape(table.n_rows, -1) for name in names]
    gaps = [np.isnan(each) if each.dtype.kind == "f" else each == "" for each in columns]
    by_column = np.concatenate([each.sum(axis=0) for each in gaps])
    n_cells, n_columns = int(by_column.sum()), np.count_nonzero(by_column)
    n_rows = int(np.any([each.any(axis=1) for each in gaps], axis=0).sum())
    note = f"Missing values are filled in and then treated as known: {n_cells:,}, in {n_rows:,} of the rows and {n_columns:,} of the columns."
    return [note] if n_cells else []


def _is_counter(column: NDArray[Any]) -> bool:
    """Whether a column holds consecutive integers, in any order."""
    if column.dtype.kind != "f" or len(column) < MIN_UNIQUE:
        return False
    return bool((np.diff(np.sort(column)) == 1).all())


def gives_away(text: NDArray[Any], labels: Labels) -> bool:
    """Whether a column is the class under another name: one value per class, in all rows and the labeled ones."""
    labeled = text[labels.nodes]
    if (labeled == labels.classes[labels.y].astype(str)).all():
        return True
    values = np.unique(text[text != ""].astype(str))
    pairs = set(zip(labeled, labels.y.tolist(), strict=True))
    n_values = len({value for value, _ in pairs})
    return len(labeled) >= ENOUGH_LABELS and len(pairs) == labels.n_classes == len(values) == n_values
