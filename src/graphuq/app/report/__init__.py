"""A fitted classifier in; a page that people look at out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphuq._expect import called, expect, expect_numbers, expect_path


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
    from graphuq.app.report.content import MAX_CELLS, TableRows, collect
    from graphuq.app.report.page import render
    from graphuq.classes import read_labels
    from graphuq.files import check_target, whole_file

    target, n_rows = expect_path(path), classifier.graph_.n_nodes
    check_target(target, force=True)
    if target.exists() and not force:
        raise ValueError(f"{target} exists already: choose another name, or replace it with force=True.")
    cells = None if X is None else expect_numbers(X, "X")
    if cells is not None and cells.ndim != 2:
        raise ValueError(f"X must be the table of fit, got the shape {cells.shape}.")
    if title is not None:
        expect(title, str, "title", "text")
    for what, given in (("columns", columns), ("names", names)):
        if given is not None and (
            isinstance(given, str) or not isinstance(given, Collection) or np.ndim(given) != 1
        ):
            raise TypeError(f"{what} must be a list of names, got {called(given)}.")
    if truth is not None:
        expect(truth, Collection, "truth", "a list of classes")
    if columns is None:
        width = 0 if cells is None else cells.shape[1]
        columns = [str(name) for name in getattr(classifier, "feature_names_in_", range(1, width + 1))][:width]
    for what, given in (("names", names), ("X", X), ("truth", truth)):
        if given is not None and (n := given.shape[0] if hasattr(given, "shape") else len(given)) != n_rows:
            raise ValueError(f"{what} must have one entry for each of the {n_rows} rows of fit, got {n}.")
    known = None
    if truth is not None:
        labels = read_labels(truth, classes=classifier.classes_)
        known = np.full(n_rows, -1)
        known[labels.nodes] = labels.y
    rows = TableRows(
        names=[str(row) for row in (range(n_rows) if names is None else names)],
        columns=[str(name) for name in columns][:MAX_CELLS],
        cells=[] if cells is None else [[f"{cell:.4g}" for cell in row[:MAX_CELLS]] for row in cells],
        truth=known,
    )
    told = title or f"The class of {n_rows:,} rows, from {len(classifier.labels_.nodes):,} known"
    page = render(collect(classifier, rows, title=told, settings={}))
    with whole_file(target) as part:
        part.write_text(page, encoding="utf-8")
    return target
