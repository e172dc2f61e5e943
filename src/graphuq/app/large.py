"""Features in a store and a table of labels in; a model, and predictions written block by block, out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq._needed import needed
from graphuq.app import folder
from graphuq.app.question import lonely_classes
from graphuq.app.tables.encode import Encoding, Feature
from graphuq.app.tables.read import EXCEL, read_table
from graphuq.app.tables.text import SEPARATORS, ending
from graphuq.app.wording import verdict, words_of_the_shell
from graphuq.classes import read_labels
from graphuq.estimator import GraphClassifier, answers
from graphuq.estimator.seen import TALL_GRAPHS, remember
from graphuq.estimator.settings import refuse_unused
from graphuq.files import HELD, held_folder, refuse_foreign
from graphuq.large.passes import cluster
from graphuq.large.stores import PARQUET
from graphuq.large.sums import forget, kept_sums
from graphuq.memory import check_disk
from graphuq.stages import peak_gigabytes, timed, versions
from graphuq.tall import Tall, tall

ANSWERS, SUMS = "answers", "sums"


def fit_store(
    store: Path,
    labels: Path,
    classifier: GraphClassifier,
    out: Path,
    *,
    replace: bool = False,
    tell: Callable[[str], None] = lambda stage: None,
    **cluster_options: Any,
) -> dict[str, Any]:
    """Fit, and write the model, the predictions as Parquet files, and run.json; return a summary.

    An interrupted fit is resumed: from its intermediate sums, cells and eigenvectors or, if the model is written,
    with the predictions that are missing; `tell` is called with where it resumes. `cluster_options` are the
    arguments of `cluster`.
    """
    if classifier.graph not in TALL_GRAPHS:
        raise ValueError(f"--graph must be one of {', '.join(TALL_GRAPHS)} for features in a store.")
    if classifier.scale == "robust" and classifier.graph != "knn":
        raise ValueError("--scale robust is for --graph knn where features are in a store: leave it out.")
    if (out / folder.REPORT).exists():
        raise ValueError(f"{out} holds the fit of a table: choose another folder.")
    refuse_foreign(out, folder.MODEL, SUMS, HELD)
    needed("pyarrow.parquet", "The answers are Parquet files, which need pyarrow", "parquet")
    began = time.perf_counter()
    with words_of_the_shell():
        X = tall(store)
    y = read_store_labels(labels, len(X))
    with held_folder(out), cluster(**cluster_options):
        with words_of_the_shell() as notes:
            given = read_labels(y)
            lonely = lonely_classes(given, "class")
            refuse_unused(classifier, given.n_classes)
            X = remember(X, given.nodes)
            key = answers.key(classifier, given, X)
            stored = None if replace else _stored_model(out, X, key)
        if stored is None:
            with kept_sums(out / SUMS, key):
                if any((out / SUMS).glob("*.npz")):
                    tell(f"going on from what an earlier run kept in {out / SUMS} ...")
                with words_of_the_shell() as fit_notes:
                    _check_space(classifier, X, given.n_classes, out)
                    classifier.fit(X, y)
                if replace and (out / ANSWERS / answers.LEDGER).exists():
                    # before the model is replaced, so that a run killed in between can be resumed
                    shutil.rmtree(out / ANSWERS)
                record = _record(classifier, X) | {"store": store.name, "of": key}
                record["diagnostics"]["warnings"] = notes + fit_notes + lonely
                folder.write(out, classifier, record=record)
        else:
            tell(f"{out} holds the model of this fit: going on with its answers ...")
            forget(out / SUMS)  # left by a run that was killed after writing its model
            classifier, record = stored.classifier.set_params(verbose=classifier.verbose), stored.record
        with words_of_the_shell(), timed(record["stages"], "answers"):
            classifier.write_proba(out / ANSWERS, force=replace)
        summary = record | _resources(began) | {"answers": str(out / ANSWERS)}
        folder.write_record(out, summary)
    return summary | summary["diagnostics"]


def predict_store(
    store: Path,
    model: folder.Stored,
    out: Path | None,
    *,
    replace: bool = False,
    verbose: bool = False,
    **cluster_options: Any,
) -> dict[str, Any]:
    """Write predictions for new rows in a store to Parquet files or a Zarr array; return a summary."""
    began = time.perf_counter()
    classifier = model.classifier.set_params(verbose=verbose)
    fitted = classifier._seen.store
    if fitted is None:
        raise ValueError(
            f"The model was fitted to a table, whose columns may hold categories, and {store} is a store: give new rows as "
            "a table too, or fit a store with --labels."
        )
    if out is None:
        raise ValueError(
            f"{store} is a store, whose answers are written block by block: give --out with a folder."
        )
    if (kind := ending(out)) in (*SEPARATORS, *EXCEL, ".npz", ".npy"):
        raise ValueError(
            f"{store} is a store, whose answers are a folder of Parquet files, or a Zarr array, and {out} is the name of a "
            f"{kind} file: give --out with the name of a folder, or NAME.zarr."
        )
    with words_of_the_shell():
        X = tall(store).with_columns(classifier.n_features_in_, fitted.names, str(store))
    with cluster(**cluster_options), words_of_the_shell() as notes:
        classifier.write_proba(out, X, force=replace)
    summary = {
        "rows": len(X),
        "classes": answers.plain(classifier.classes_),
        "warnings": notes,
        "answers": str(out),
    }
    return summary | _resources(began)


def _check_space(classifier: GraphClassifier, X: Tall, n_classes: int, out: Path) -> None:
    """Raise an error if the disk lacks space for the model, and for intermediate results or the predictions."""
    present, temporary = sum(file.stat().st_size for file in (out / SUMS).glob("*.npz")), 0.0
    if classifier.graph == "knn":
        # Cells, neighbors, and modes: a third, or 10, more than requested, twice while they are replaced. Those of
        # a learned prior are in single precision, but the smaller set of modes computed before is there too.
        modes = (16.0 if classifier.prior == "learned" else 21.0) * (classifier.n_modes + 10)
        temporary = len(X) * (8.0 * 16 + 2 * 12.0 * classifier.n_neighbors + modes)
    kept = max(answers.space(len(X), n_classes), temporary) - present
    what = "The model, with its answers or what is kept until it is there,"
    check_disk(out, folder.space(classifier, X) + kept, what)


def _resources(began: float) -> dict[str, float]:
    return {"seconds": round(time.perf_counter() - began, 3), "peak_gigabytes": peak_gigabytes()}


def as_store(path: Path, model: folder.Stored) -> bool:
    """Whether to read new rows in blocks; for a Parquet file, if the model was fitted to a store."""
    stored = model.classifier._seen.store is not None
    return path.is_dir() or path.suffix == ".npy" or (stored and path.suffix in PARQUET)


def _stored_model(out: Path, X: Tall, key: str) -> folder.Stored | None:
    """The model in a folder, if there is one; raise an error if it is of another fit."""
    if not (out / folder.MODEL).exists():
        return None
    stored = folder.read(out, store=X)
    if stored.record.get("of") != key:
        raise ValueError(
            f"{out} holds the model of another fit, or of a store that was written to since: choose another folder, or "
            "replace it with --force."
        )
    return stored


def _record(classifier: GraphClassifier, X: Tall) -> dict[str, Any]:
    """The record of a fit; its encoding lets a table of new rows have the columns of the store."""
    diagnosis, has_self_check = classifier.posterior_.diagnostics(), classifier.posterior_.model.offers("sites")
    return {
        "rows": len(X),
        "labeled": len(classifier.labels_.nodes),
        "classes": classifier.classes_.tolist(),
        "diagnostics": {
            "converged": diagnosis.converged,
            "verdict": verdict(diagnosis),
            "self_check": str(classifier.self_check()) if has_self_check else None,
        },
        "stages": dict(classifier.stages_),
        "settings": {name: value for name, value in classifier.get_params().items() if name != "verbose"},
        "versions": versions(),
        "row_id": None,
        "encoding": Encoding(tuple(Feature(name) for name in X.names)).to_json(),
    }


def read_store_labels(path: Path, n_rows: int) -> NDArray[Any]:
    """The class of every row, "" where unknown, from a table with the columns row (from 0) and class."""
    table = read_table(path, as_text=["class"])
    table.expect("row", "class")
    rows = table.column("row")
    valid = np.array([text.isdecimal() for text in table.text("row")], dtype=bool)
    if rows.dtype.kind == "f":
        valid = (rows >= 0) & (rows < n_rows) & (rows == np.floor(rows))
    if not valid.all() or rows.dtype.kind != "f":
        invalid = table.text("row")[np.argmin(valid)] or "nothing"
        raise ValueError(f"Column 'row' of {path.name} must hold row numbers, 0 to {n_rows - 1}, got {invalid}.")
    rows = rows.astype(np.int64)
    unique, counts = np.unique(rows, return_counts=True)
    if unique.size < rows.size:
        raise ValueError(f"Row {unique[counts > 1][0]} stands in {path.name} more than once: a row has one class.")
    classes = table.text("class")
    if "-1" in classes:
        raise ValueError(
            f"Column 'class' of {path.name} holds -1, which marks rows without a class: leave those out, or rename it."
        )
    y = np.full(n_rows, "", dtype=np.asarray(classes.tolist() or [""], dtype=str).dtype)
    y[rows] = classes
    return y


def summary_in_words(summary: dict[str, Any]) -> str:
    """The summary of a fit or a prediction as text."""
    labeled = f", {summary['labeled']:,} with a class" if "labeled" in summary else ""
    lines = [
        f"{summary['rows']:,} rows{labeled}, in {summary['seconds']:,.0f} s and {summary['peak_gigabytes']:.1f} GB.",
        summary.get("verdict"),
        summary.get("self_check"),
        *(f"Note: {note}" for note in summary["warnings"]),
        f"Every row: {summary['answers']}",
    ]
    return "\n".join(line for line in lines if line)
