"""A fitted classifier in; a page that people look at out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


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
    from graphuq.app.report.content import MAX_CELLS, Rows, collect
    from graphuq.app.report.page import render
    from graphuq.classes import read_labels
    from graphuq.files import check_target, whole_file

    target, n_rows = Path(path), classifier.graph_.n_nodes
    check_target(target, force)
    if columns is None:
        width = 0 if X is None else np.shape(X)[1]
        columns = [str(name) for name in getattr(classifier, "feature_names_in_", range(1, width + 1))][:width]
    for what, given in (("names", names), ("X", X), ("truth", truth)):
        if given is not None and (n := given.shape[0] if hasattr(given, "shape") else len(given)) != n_rows:
            raise ValueError(f"{what} must have one entry for each of the {n_rows} rows of fit, got {n}.")
    known = None
    if truth is not None:
        labels = read_labels(truth, classes=classifier.classes_)
        known = np.full(n_rows, -1)
        known[labels.nodes] = labels.y
    rows = Rows(
        names=[str(row) for row in (range(n_rows) if names is None else names)],
        columns=list(columns)[:MAX_CELLS],
        cells=[]
        if X is None
        else [[f"{cell:.4g}" for cell in row[:MAX_CELLS]] for row in np.asarray(X, dtype=float)],
        truth=known,
    )
    told = title or f"The class of {n_rows:,} rows, from {len(classifier.labels_.nodes):,} known"
    page = render(collect(classifier, rows, title=told, settings={}))
    with whole_file(target) as part:
        part.write_text(page, encoding="utf-8")
    return target
