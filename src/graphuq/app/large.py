"""Features in a store and a table of labels in; a model, and answers that are written block by block, out; also for new rows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.app import folder
from graphuq.app.question import lonely_classes
from graphuq.app.tables.encode import Encoding, Feature
from graphuq.app.tables.read import EXCEL, read_table
from graphuq.app.tables.text import SEPARATORS, ending
from graphuq.app.wording import verdict, words_of_the_shell
from graphuq.classes import read_labels
from graphuq.estimator import GraphClassifier, answers
from graphuq.estimator.seen import TALL_GRAPHS, remember
from graphuq.estimator.settings import refuse_ignored
from graphuq.files import HELD, held_folder
from graphuq.large.passes import cluster
from graphuq.large.stores import PARQUET
from graphuq.large.sums import forget, kept_sums
from graphuq.memory import check_disk
from graphuq.models.base import offers
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
    **carried_by: Any,
) -> dict[str, Any]:
    """Fit, write the model, the answers to Parquet files, and run.json. Returns a summary.

    A fit that was stopped goes on: from what it had made of blocks, cells and eigenvectors, from its model once that is
    there, and with the answers that are not; `tell` is called with from which. `carried_by` is the cluster, if any.
    """
    if classifier.graph not in TALL_GRAPHS:
        raise ValueError(f"--graph must be one of {', '.join(TALL_GRAPHS)} for features in a store.")
    if classifier.scale == "robust" and classifier.graph != "knn":
        raise ValueError("--scale robust is for --graph knn where features are in a store: leave it out.")
    if (out / folder.REPORT).exists():
        raise ValueError(f"{out} holds the fit of a table: choose another folder.")
    if (
        out.is_dir()
        and any(out.iterdir())
        and not any((out / name).exists() for name in (folder.MODEL, SUMS, HELD))
    ):
        raise ValueError(f"{out} holds something that graphuq did not write: choose another folder.")
    began = time.perf_counter()
    with words_of_the_shell():
        X = tall(store)
    y = read_store_labels(labels, len(X))
    with held_folder(out), cluster(**carried_by):
        with words_of_the_shell() as notes:
            given = read_labels(y)
            lonely = lonely_classes(given, "class")
            refuse_ignored(classifier, given.n_classes)
            X = remember(X, given.nodes)
            of = answers.key(classifier, given, X)
            known = None if replace else _known(out, X, of)
        if known is None:
            with kept_sums(out / SUMS, of):
                if any((out / SUMS).glob("*.npz")):
                    tell(f"going on from what an earlier run kept in {out / SUMS} ...")
                with words_of_the_shell() as more:
                    _check_space(classifier, X, given.n_classes, out)
                    classifier.fit(X, y)
                if replace and (out / ANSWERS / answers.LEDGER).exists():
                    # before its model is: a run that is killed between them can go on
                    shutil.rmtree(out / ANSWERS)
                record = _record(classifier, X) | {"store": store.name, "of": of}
                record["diagnostics"]["warnings"] = notes + more + lonely
                folder.write(out, classifier, record=record)
        else:
            tell(f"{out} holds the model of this fit: going on with its answers ...")
            forget(out / SUMS)  # of a run that was killed when it had its model
            classifier, record = known.classifier.set_params(verbose=classifier.verbose), known.record
        with words_of_the_shell(), timed(record["stages"], "answers"):
            classifier.write_proba(out / ANSWERS, force=replace)
        told = record | _taken(began) | {"answers": str(out / ANSWERS)}
        folder.write_record(out, told)
    return told | told["diagnostics"]


def predict_store(
    store: Path,
    model: folder.Stored,
    out: Path | None,
    *,
    replace: bool = False,
    verbose: bool = False,
    **carried_by: Any,
) -> dict[str, Any]:
    """Write the answers of new rows in a store to Parquet files, or a Zarr array, by a model that was kept. Returns a summary."""
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
        X = tall(store)
    X.expect_columns(classifier.n_features_in_, fitted.names, str(store))
    with cluster(**carried_by), words_of_the_shell() as notes:
        classifier.write_proba(out, X, force=replace)
    told = {"rows": len(X), "classes": classifier.classes_.tolist(), "warnings": notes, "answers": str(out)}
    return told | _taken(began)


def _check_space(classifier: GraphClassifier, X: Tall, n_classes: int, out: Path) -> None:
    """Refuse a disk that has no space for what is kept until there is a model, for it, and for the answers after that."""
    there, meanwhile = sum(each.stat().st_size for each in (out / SUMS).glob("*.npz")), 0.0
    if classifier.graph == "knn":
        # Cells; and neighbors, and a third, or 10, more modes than are asked for, twice while they are replaced. Those of
        # a learned prior are in single precision, and fewer modes that were found before are there too.
        modes = (16.0 if classifier.prior == "learned" else 21.0) * (classifier.n_modes + 10)
        meanwhile = len(X) * (8.0 * 16 + 2 * 12.0 * classifier.n_neighbors + modes)
    later = max(answers.space(len(X), n_classes), meanwhile) - there
    what = "The model, with its answers or what is kept until it is there,"
    check_disk(out, folder.space(classifier, X) + later, what)


def _taken(began: float) -> dict[str, float]:
    return {"seconds": round(time.perf_counter() - began, 3), "peak_gigabytes": peak_gigabytes()}


def as_store(path: Path, model: folder.Stored) -> bool:
    """Whether new rows are to be read in blocks; a Parquet file is as the fit was."""
    stored = model.classifier._seen.store is not None
    return path.is_dir() or path.suffix == ".npy" or (stored and path.suffix in PARQUET)


def _known(out: Path, X: Tall, of: str) -> folder.Stored | None:
    """The model in a folder, if there is one; that of another fit is refused."""
    if not (out / folder.MODEL).exists():
        return None
    found = folder.read(out, store=X)
    if found.record.get("of") != of:
        raise ValueError(
            f"{out} holds the model of another fit, or of a store that was written to since: choose another folder, or "
            "replace it with --force."
        )
    return found


def _record(classifier: GraphClassifier, X: Tall) -> dict[str, Any]:
    """What is told of a fit; a table of new rows has the columns of the store, by their names or in their order."""
    found, checked = classifier.posterior_.diagnostics(), offers(classifier.posterior_.model, "sites")
    return {
        "rows": len(X),
        "labeled": len(classifier.labels_.nodes),
        "classes": classifier.classes_.tolist(),
        "diagnostics": {
            "converged": found.converged,
            "verdict": verdict(found),
            "self_check": str(classifier.self_check()) if checked else None,
        },
        "stages": dict(classifier.stages_),
        "settings": {name: value for name, value in classifier.get_params().items() if name != "verbose"},
        "versions": versions("dask", "zarr", "pyarrow"),
        "row_id": None,
        "encoding": Encoding(tuple(Feature(name) for name in X.names)).to_json(),
    }


def read_store_labels(path: Path, n_rows: int) -> NDArray[Any]:
    """The classes of all rows, "" where there is none, from a table with the columns row, from 0, and class."""
    table = read_table(path)
    for name in ("row", "class"):
        table.column(name)
    rows = table.column("row")
    good = np.array([text.isdecimal() for text in table.text("row")], dtype=bool)
    if rows.dtype.kind == "f":
        good = (rows >= 0) & (rows < n_rows) & (rows == np.floor(rows))
    if not good.all() or rows.dtype.kind != "f":
        strange = table.text("row")[np.argmin(good)] or "nothing"
        raise ValueError(f"Column 'row' of {path.name} must hold row numbers, 0 to {n_rows - 1}, got {strange}.")
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
    """The outcome of a fit or of a prediction, for a person."""
    known = f", {summary['labeled']:,} with a class" if "labeled" in summary else ""
    lines = [
        f"{summary['rows']:,} rows{known}, in {summary['seconds']:,.0f} s and {summary['peak_gigabytes']:.1f} GB.",
        summary.get("verdict"),
        summary.get("self_check"),
        *(f"Note: {each}" for each in summary["warnings"]),
        f"Every row: {summary['answers']}",
    ]
    return "\n".join(line for line in lines if line)
