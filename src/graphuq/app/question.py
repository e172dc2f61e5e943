"""A question about a table on disk in; its features, labels and rows, with notes on oddities, out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app.options import Reading
from graphuq.app.report.content import TableRows, n_columns_shown
from graphuq.app.tables.doubts import filled_in, notes_on
from graphuq.app.tables.encode import Encoding, fit_encoding
from graphuq.app.tables.read import Table, read_table
from graphuq.app.tables.text import spelled
from graphuq.classes import LIKE_NONE, UNLABELED_TEXT, Labels, names_listed, read_labels
from graphuq.estimator.settings import COMPARES_COLUMNS

if TYPE_CHECKING:
    from graphuq.estimator import GraphClassifier

Array = NDArray[np.float64]

MOST_LONELY = 20  # classes with one label each; a column with more holds numbers or row names


@dataclass(frozen=True)
class Question(Reading):
    """A table to classify, the roles of its columns, and how to read it.

    Attributes:
        table: the file.
        label: the column with the class of some rows.
        truth: a column with the true classes of rows, to evaluate the predictions.
    """

    table: Path
    label: str
    truth: str | None = None

    def __post_init__(self) -> None:
        options = {"--label": self.label, "--id": self.row_id, "--truth": self.truth}
        given = [(name, option) for option, name in options.items() if name is not None]
        roles: dict[str, str] = {}
        for name, option in [*given, *((name, "--column") for name in self.columns)]:
            if name in roles:
                raise ValueError(f"Column {name!r} is given as {roles[name]} and again as {option}: use it once.")
            roles[name] = option
        for name in self.drop:
            if name in roles:
                raise ValueError(
                    f"Column {name!r} is given as {roles[name]} and as --drop: use it, or leave it out."
                )
            if self.columns:
                raise ValueError(f"--drop {name} changes nothing: --column says which columns are used.")


@dataclass(frozen=True, eq=False)
class Data:
    """A table in the form that the classifier and the report need.

    `notes` point out what may not be intended; `scale` is the option --scale.
    """

    X: Array
    y: NDArray[Any]  # text, "" where there is no label
    encoding: Encoding
    rows: TableRows
    notes: list[str]
    table: Table
    scale: str

    def rescale(self, classifier: GraphClassifier) -> None:
        """Set the classifier's scale: as given, else "robust" unless a column holds many numbers per row."""
        if classifier.graph in COMPARES_COLUMNS:
            default = "robust" if self.encoding.of_single_numbers else "auto"
            classifier.scale = default if self.scale == "auto" else str(self.scale)
        elif self.scale != "auto":
            raise ValueError(
                f"--scale is for distances, which --graph {classifier.graph} does not take: leave it out."
            )


def read_data(question: Question, *, any_labels: bool = False) -> Data:
    """Read and check the table; with `any_labels`, as before a labeling session, it need not have any labels."""
    table = read_table(
        question.table,
        separator=question.separator,
        sheet=question.sheet,
        as_text=(question.label, question.row_id, question.truth, *question.categories),
    )
    if table.n_rows < 2:
        raise ValueError(" ".join([f"{table.source.name} has one row, and a graph needs two.", *table.notes]))
    # a label column that does not exist yet is added, unless the name looks like a typing error
    if any_labels and not get_close_matches(question.label, table.columns, n=1, cutoff=0.8):
        table = replace(table, columns={**table.columns, question.label: np.full(table.n_rows, "", dtype=object)})
    y = table.text(question.label)
    if question.unlabeled:
        unlabeled = spelled(question.unlabeled, y)
        if unlabeled not in (*y, *table.missing_words.get(question.label, ())):
            raise ValueError(
                f"No row holds {question.unlabeled!r} in column {question.label!r}: leave out --unlabeled."
            )
        y = np.where(y == unlabeled, "", y)
    notes = table.notes + _missing_words(table, question.label, "unlabeled", unless=question.unlabeled)
    labels = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit gives these; before labeling they are premature
        if not any_labels:
            labels = _labels(y, table, question, notes)
        elif len({*y} - {*UNLABELED_TEXT}) > 1:
            labels = read_labels(y)
    names = _features(table, question)
    table = replace(table, row_names=row_names(table, question.row_id))
    categories, named = list(question.categories), question.row_id is not None
    labeled = ~np.isin(y, UNLABELED_TEXT)
    label_copies = [
        name
        for name in names
        if table.column(name).dtype.kind == "O" and labeled.any() and (table.column(name) == y)[labeled].all()
    ]
    if categories == ["all"]:
        categories = [name for name in names if table.column(name).dtype.kind != "f" and name not in label_copies]
        if not categories and not label_copies:
            raise ValueError(f"No feature of {table.source.name} holds text: leave out --category all.")
    for name in categories:
        table.column(name)
        if name not in names:
            raise ValueError(f"Column {name!r} is given as --category, and it is not one of the features.")
        notes += _missing_words(table, name, "missing", names="category")
    notes += [] if labels is None else notes_on(table, names, categories, labels, named=named)
    better_option = "--drop" if any_labels or question.truth else "--truth"
    encoding = fit_encoding(
        table,
        names,
        categories=categories,
        answers={name: f"{better_option} {quote(name)}" for name in label_copies},
        named=named,
        impute=question.impute,
    )
    notes += filled_in(table, names)
    truth = None
    if question.truth is not None and labels is not None:
        truth = _truth(table.text(question.truth), labels, question)
        notes += _missing_words(table, question.truth, "not known")
    return Data(encoding.encode(table), y, encoding, _rows(table, names, truth), notes, table, question.scale)


def _labels(y: NDArray[Any], table: Table, question: Question, notes: list[str]) -> Labels:
    """Read the labels of a column, which must leave some rows unlabeled; append notes on oddities."""
    try:
        labels = read_labels(y)
    except ValueError as error:
        about_cells = notes[len(table.notes) :]  # without those on the format of the file
        raise ValueError(" ".join([f"Column {question.label!r}: {error}", *about_cells])) from None
    if len(labels.nodes) == table.n_rows:
        words = [str(name) for name in labels.classes if str(name).lower() in LIKE_NONE]
        mark = quote(words[0]) if words else "MARK"
        raise ValueError(
            f"Every row of {table.source.name} has a class in {question.label!r}, so there is nothing to find "
            f"out: leave that cell empty in the rows in question, or say what stands for it: --unlabeled {mark}."
        )
    notes += lonely_classes(labels, question.label)
    return labels


def _features(table: Table, question: Question) -> Sequence[str]:
    """The columns used as features."""
    roles = (question.label, question.row_id, question.truth)
    table.expect(*question.columns, *question.drop, *(name for name in roles if name is not None))
    names = question.columns or [name for name in table.columns if name not in (*roles, *question.drop)]
    if not names:
        raise ValueError(f"{table.source.name} has no column left to use as a feature.")
    return names


def _missing_words(table: Table, name: str, role: str, *, unless: str = "", names: str = "class") -> list[str]:
    """A note for each word, such as "NA", that is read as missing but could be the name of a class or category."""
    return [
        f"Column {name!r} holds {word!r} in {n:,} row{'s' if n > 1 else ''}, which count{'' if n > 1 else 's'} as "
        f"{role}: if it names a {names}, give the {names} another name."
        for word, n in table.missing_words.get(name, {}).items()
        if word != unless
    ]


def lonely_classes(labels: Labels, column: str) -> list[str]:
    """A note on classes with a single label; raise an error if the column holds no classes at all."""
    lonely = labels.classes[labels.counts() == 1]
    if not len(lonely):
        return []
    if len(lonely) == labels.n_classes > MOST_LONELY:
        raise ValueError(
            f"Column {column!r} holds something different in each of {len(lonely):,} rows: those are not classes, which "
            "several rows have in common."
        )
    subject = "Class" if len(lonely) == 1 else "Each of the classes"
    told = f"{subject} {names_listed(lonely)} has a single label: nothing would tell if it were a mistake."
    return [f"{told} A second one helps most."]


def _truth(text: NDArray[Any], labels: Labels, question: Question) -> NDArray[np.int64]:
    """The index of the true class of each row, -1 where unknown."""
    index = {"": -1, **{str(name): k for k, name in enumerate(labels.classes)}}
    names = [spelled(name, index) for name in text]
    unknown = [name for name in names if name not in index]
    if unknown:
        raise ValueError(
            f"Column {question.truth!r} holds {unknown[0][:40]!r}, and no row has that class in {question.label!r}, so "
            "it cannot be found: label one such row, or leave those cells empty."
        )
    return np.array([index[name] for name in names])


def row_names(table: Table, row_id: str | None) -> list[str]:
    """The names of the rows: the cells of a column, which must be unique, or numbers from 1."""
    if row_id is None:
        return [str(row) for row in range(1, table.n_rows + 1)]
    names = [str(name) for name in table.text(row_id)]
    seen: dict[str, int] = {}
    for row, name in enumerate(names, start=1):
        if name in seen:
            raise ValueError(
                f"The row id {name!r} repeats in column {row_id!r}: rows {seen[name]} and {row} have it."
            )
        seen[name] = row
    return names


def _rows(table: Table, names: Sequence[str], truth: NDArray[np.int64] | None) -> TableRows:
    single = [name for name in names if table.column(name).ndim == 1]
    n_shown = n_columns_shown(table.n_rows, len(single))
    blocks, gray = [table.column(name) for name in names if table.column(name).ndim == 3], None
    if len(blocks) == 1:  # pictures, scaled from the smallest to the largest value
        low, high = np.nanmin(blocks[0]), np.nanmax(blocks[0])
        gray = 255 * (np.nan_to_num(blocks[0], nan=low) - low) / max(high - low, 1e-300)
    columns = [table.as_written(name) for name in single[:n_shown]]
    return TableRows(
        names=table.row_names,
        columns=single[:n_shown],
        cells=[[str(cell)[:200] for cell in cells] for cells in zip(*columns, strict=True)],
        n_left_out=len(single) - n_shown,
        pictures=None if gray is None else gray.astype(np.uint8),
        truth=truth,
    )
