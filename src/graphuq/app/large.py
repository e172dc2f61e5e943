"""Features in a store and a table of labels in; a folder with the answer of every row, written block by block, out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app.tables import read_table
from graphuq.app.wording import verdict, words_of_the_shell
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_file
from graphuq.models.base import offers
from graphuq.passes import cluster
from graphuq.seen import TALL_GRAPHS
from graphuq.stages import peak_gigabytes, versions
from graphuq.tall import tall

ANSWERS, NEW, RUN = "answers", "new-answers", "run.json"


def fit_store(
    store: Path,
    labels: Path,
    classifier: GraphClassifier,
    out: Path,
    *,
    new: Path | None = None,
    replace: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """Fit, write the answers to Parquet files, those of a store of new rows too, and run.json. Returns a summary.

    Answers that are there already are kept.
    """
    if classifier.graph not in TALL_GRAPHS:
        raise ValueError(f"--graph must be one of {', '.join(TALL_GRAPHS)} for features in a store.")
    began = time.perf_counter()
    X = tall(store)
    y = read_store_labels(labels, len(X))
    X_new = None if new is None else tall(new)
    if X_new is not None:
        X_new.expect_columns(X.shape[1], X.names, str(new))
    with words_of_the_shell() as notes, cluster(scheduler=scheduler, workers=workers):
        classifier.fit(X, y)
        tell(f"answers, after {time.perf_counter() - began:.0f} seconds ...")
        classifier.write_proba(out / ANSWERS, force=replace)
        if X_new is not None:
            classifier.write_proba(out / NEW, X_new, force=replace)
    summary = {
        "rows": len(X),
        "labeled": len(classifier.labels_.nodes),
        "classes": classifier.classes_.tolist(),
        "verdict": verdict(classifier.posterior_.diagnostics()),
        "self_check": str(classifier.self_check()) if offers(classifier.posterior_.model, "sites") else None,
        "warnings": notes,
        "seconds": round(time.perf_counter() - began, 3),
        "stages": classifier.stages_,
        "peak_gigabytes": peak_gigabytes(),
        "answers": str(out / ANSWERS),
        "new_answers": None if new is None else str(out / NEW),
    }
    settings = {name: value for name, value in classifier.get_params().items() if name != "verbose"}
    record = {
        **summary,
        "store": store.name,
        "settings": settings,
        "versions": versions("dask", "zarr", "pyarrow"),
    }
    with whole_file(out / RUN) as part:
        part.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return summary


def read_store_labels(path: Path, n_rows: int) -> NDArray[Any]:
    """The classes of all rows, "" where there is none, from a table with the columns row, from 0, and class."""
    table = read_table(path)
    for name in ("row", "class"):
        table.column(name)
    rows = table.column("row")
    good = np.full(len(rows), rows.dtype.kind == "f")
    if good.all():
        good = (rows >= 0) & (rows < n_rows) & (rows == np.floor(rows))
    if not good.all():
        strange = rows[~good][0]
        raise ValueError(f"Column 'row' of {path.name} must hold row numbers, 0 to {n_rows - 1}, got {strange}.")
    rows = rows.astype(np.int64)
    unique, counts = np.unique(rows, return_counts=True)
    if unique.size < rows.size:
        raise ValueError(f"Row {unique[counts > 1][0]} stands in {path.name} more than once: a row has one class.")
    classes = table.text("class")
    y = np.full(n_rows, "", dtype=np.asarray(classes.tolist() or [""], dtype=str).dtype)
    y[rows] = classes
    return y


def in_words(summary: dict[str, Any]) -> str:
    """The outcome, for a person."""
    lines = [
        f"{summary['rows']:,} rows, {summary['labeled']:,} with a class, in {summary['seconds']:,.0f} s and "
        f"{summary['peak_gigabytes']:.1f} GB.",
        summary["verdict"],
        *([summary["self_check"]] if summary["self_check"] else []),
        *(f"Note: {each}" for each in summary["warnings"]),
        f"Every row: {summary['answers']}",
        *([f"New rows: {summary['new_answers']}"] if summary["new_answers"] else []),
    ]
    return "\n".join(lines)
