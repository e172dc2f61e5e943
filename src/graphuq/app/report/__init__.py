"""A fitted classifier in; an HTML report out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from graphuq._expect import called, expect, expect_numbers, expect_path
from graphuq.classes import is_missing, read_labels


def write_report(
    classifier: Any,
    path: str | Path,
    *,
    X: Any = None,
    names: Sequence[Any] | None = None,
    columns: Sequence[str] | None = None,
    truth: Any = None,
    title: str | None = None,
    force: bool = False,
) -> Path:
    """Write the report of a classifier that was fitted in Python; see `GraphClassifier.report`."""
    from graphuq.app.report.content import TableRows, collect, n_columns_shown
    from graphuq.app.report.page import render
    from graphuq.files import check_target, write_text

    target, n_rows = expect_path(path), classifier.graph_.n_nodes
    check_target(target, force, by="force=True")
    framed = getattr(X, "columns", None)  # of a data frame, which may also hold text, for display only
    cells = None if X is None else expect_numbers(X, "X") if framed is None else np.asarray(X, dtype=object)
    if cells is not None and cells.ndim != 2:
        raise ValueError(f"X must be the table of fit, got the shape {cells.shape}.")
    if title is not None:
        expect(title, str, "title", "text")
    for what, given in (("columns", columns), ("names", names)):
        is_list = isinstance(given, Collection) and not isinstance(given, str) and np.ndim(given) == 1
        if given is not None and not is_list:
            raise TypeError(f"{what} must be a list of names, got {called(given)}.")
    if truth is not None:
        expect(truth, Collection, "truth", "a list of classes")
    for what, given in (("names", names), ("X", X), ("truth", truth)):
        if given is not None and (n := given.shape[0] if hasattr(given, "shape") else len(given)) != n_rows:
            raise ValueError(f"{what} must have one entry for each of the {n_rows} rows of fit, got {n}.")
    if names is None:
        names = range(n_rows) if framed is None else getattr(X, "index", range(n_rows))
    if columns is None:
        width = 0 if cells is None else cells.shape[1]
        available = getattr(classifier, "feature_names_in_", range(1, width + 1)) if framed is None else framed
        columns = list(available)[:width]
    n_shown = n_columns_shown(n_rows, len(columns))
    true_class = None
    if truth is not None:
        labels = read_labels(truth, classes=classifier.classes_)
        true_class = np.full(n_rows, -1)
        true_class[labels.nodes] = labels.y
    rows = TableRows(
        names=[str(row) for row in names],
        columns=[str(name) for name in columns[:n_shown]],
        cells=[] if cells is None else [[_cell(cell) for cell in row[:n_shown]] for row in cells],
        n_left_out=len(columns) - n_shown,
        truth=true_class,
    )
    heading = title or f"The class of {n_rows:,} rows, from {len(classifier.labels_.nodes):,} known"
    write_text(target, render(collect(classifier, rows, title=heading, settings={})))
    return target


def _cell(cell: Any) -> str:
    """Format a number, text or time for the page; a missing value is empty."""
    if is_missing(cell):
        return ""
    return f"{cell:.4g}" if isinstance(cell, Real) and not isinstance(cell, bool) else str(cell)[:200]
