"""A table on disk in; a folder with predictions, the model and a report out; and predictions for new tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.app import folder
from graphuq.app.question import Data, Question, read_data, row_names
from graphuq.app.report.content import Content, TableRows, collect
from graphuq.app.report.page import render
from graphuq.app.tables.doubts import filled_in
from graphuq.app.tables.encode import Encoding, Feature, scaling_in_words
from graphuq.app.tables.read import Table, read_table
from graphuq.app.tables.text import Marks, on_one_line
from graphuq.app.tables.write import beside, write_csv
from graphuq.app.wording import words_of_the_shell
from graphuq.classes import read_labels
from graphuq.estimator import GraphClassifier, answers
from graphuq.estimator.settings import refuse_unused
from graphuq.files import whole_folder, write_text
from graphuq.large.stores import PARQUET
from graphuq.stages import versions

Array = NDArray[np.float64]

N_LISTED = 10
ROW = "row"  # name of the row column of predictions if the table has none


def fit_folder(
    question: Question,
    classifier: GraphClassifier,
    out: Path,
    *,
    replace: bool = False,
    tell: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """Fit, and write predictions.csv, report.html, the model and run.json; return a summary.

    `out` is written atomically. `tell` is called with the name of each stage, in addition to a verbose
    classifier's output.
    """
    began = time.perf_counter()
    with whole_folder(out, replace=replace, foreign=folder.foreign) as part:
        tell(f"reading {question.table.name or question.table} ...")
        data = read_data(question)
        with words_of_the_shell(data.rows.names) as notes:
            refuse_unused(classifier, read_labels(data.y).n_classes)
            data.rescale(classifier)
            classifier.fit(data.X, data.y)
        seconds = time.perf_counter() - began
        tell(f"report and files, after {seconds:.1f} s ...")
        return write_results(part, question, data, classifier, notes=notes, seconds=seconds)


def write_results(
    part: Path, question: Question, data: Data, classifier: GraphClassifier, *, notes: list[str], seconds: float
) -> dict[str, Any]:
    """Write the results of a fitted classifier into a folder; return a summary."""
    record: dict[str, Any] = {
        "title": f"{question.label} of {len(data.X):,} rows in {question.table.name}, from {len(classifier.labels_.nodes):,} known",
        "table": question.table.name,
        "label": question.label,
        "row_id": question.row_id,
        "encoding": data.encoding.to_json(),
        "marks": {"decimal": data.table.marks.decimal, "points": dict(data.table.marks.points)},
        "scaling": scaling_in_words(data.encoding, data.X, robust=classifier.scale == "robust"),
        "seed": classifier.random_state,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "diagnostics": {"warnings": [*data.notes, *notes]},
    }
    content = _content(classifier, data.rows, record)
    record["diagnostics"] |= {
        "converged": content.converged,
        "r_hat": _finite(max((quantity[2] for quantity in content.convergence), default=np.nan)),
        "effective_draws": _finite(min((quantity[3] for quantity in content.convergence), default=np.nan)),
        "verdict": content.verdict,
        "self_check": content.self_check,
        "truth_check": content.truth_check,
        "suspicious_labels": None if content.suspicious is None else len(content.suspicious),
    }
    folder.write(part, classifier, data.rows, record)
    with (part / folder.ANSWERS).open("w", encoding="utf-8", newline="") as file:
        names = {question.row_id or ROW: data.rows.names}
        write_csv(file, beside(names, _predictions(classifier)), data.table.marks)
    write_text(part / folder.REPORT, render(content))
    return _summary(classifier, content, record)


def predict_table(
    model: folder.Stored,
    table: Path,
    *,
    separator: str | None = None,
    sheet: str | None = None,
    ignore_unknown: bool = False,
) -> tuple[dict[str, Sequence[Any]], list[str], Marks]:
    """Predictions for the rows of a new table, by column; notes; and the format marks of that table."""
    classifier, _, record = model
    like = Marks(**record["marks"]) if "marks" in record else None
    row_id, stored_encoding = record.get("row_id"), record.get("encoding")
    categories = [feature["name"] for feature in stored_encoding or () if feature["levels"]]
    as_text = (row_id, *categories)
    data = read_table(table, separator=separator, sheet=sheet, like=like, as_text=as_text)
    row_id = row_id if row_id in data.columns else None
    names = row_names(data, row_id)
    data = replace(data, row_names=names)
    encoding = Encoding.from_json(stored_encoding) if stored_encoding else _plain_encoding(data, classifier)
    X = encoding.encode(data, ignore_unknown=ignore_unknown)
    classifier = copy(classifier)
    classifier.__dict__.pop("feature_names_in_", None)  # already used to select the columns
    with words_of_the_shell(names) as notes:
        classes = answers.at(classifier, *classifier.locate(X))  # rows of the fit get their probabilities there
    columns = _columns(classifier.classes_, classes.probability, classes.error)
    filled_notes = filled_in(data, [feature.name for feature in encoding.features])
    all_notes = [*data.notes, *filled_notes, *encoding.unknown(data), *notes]
    return beside({row_id or ROW: names}, columns), all_notes, data.marks


def _plain_encoding(table: Table, classifier: GraphClassifier) -> Encoding:
    """The encoding for a model fitted in Python: its named columns, or all columns if none of them is there."""
    fit_names = [on_one_line(name) for name in getattr(classifier, "feature_names_in_", ())]
    if not table.columns.keys().isdisjoint(fit_names):
        return Encoding(tuple(Feature(name) for name in fit_names))
    widths = {name: int(np.prod(table.column(name).shape[1:])) for name in table.columns}
    if sum(widths.values()) != classifier.n_features_in_:
        raise ValueError(
            f"{table.source.name} has {sum(widths.values())} columns, and the fit has {classifier.n_features_in_}, which "
            "have no names: give the same features in their order, and no others."
        )
    if _is_data_row(names := list(widths)) and table.source.suffix.lower() not in (".npz", *PARQUET):
        raise ValueError(
            f"The first line of {table.source.name} holds numbers ({', '.join(names[:3])}, ...), where names of columns are "
            "needed: put a line of names before the rows."
        )
    return Encoding(tuple(Feature(*column) for column in widths.items()))


def _is_data_row(names: list[str]) -> bool:
    """Whether column names look like a row of data: numbers other than the consecutive ones that pandas writes."""
    try:
        numbers = np.array([name.replace(",", ".") for name in names], dtype=np.float64)
    except ValueError:
        return False
    return numbers[0] not in (0, 1) or bool((np.diff(numbers) != 1).any())


def rewrite_report(model: Path, out: Path | None = None) -> Path:
    """Write the report of a fitted folder again, into it or to `out`."""
    target = model / folder.REPORT if out is None else out
    classifier, rows, record = folder.read(model)
    if "table" not in record:
        raise ValueError(
            f"{model} holds a model that was not fitted to a table of the command line: it has no report."
        )
    write_text(target, render(_content(classifier, rows, record)))
    return target


def _content(classifier: GraphClassifier, rows: TableRows, record: dict[str, Any]) -> Content:
    settings = {
        "table": record["table"],
        "label": record["label"],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["versions"],
    }
    notes = record["diagnostics"]["warnings"]
    return collect(classifier, rows, title=record["title"], settings=settings, notes=notes)


def _predictions(classifier: GraphClassifier) -> dict[str, Sequence[Any]]:
    """The predictions for the rows of the fit, by column."""
    probability, error = classifier.label_distributions_, classifier.label_errors_
    columns = _columns(classifier.classes_, probability, error)
    label_of = dict(zip(classifier.labels_.nodes.tolist(), classifier.classes_[classifier.labels_.y], strict=True))
    rows = range(len(probability))
    return {
        **columns,
        "labeled": ["yes" if row in label_of else "no" for row in rows],
        "label": [str(label_of.get(row, "")) for row in rows],
    }


def _columns(classes: NDArray[Any], probability: Array, error: Array) -> dict[str, Sequence[Any]]:
    """Columns with one entry per row; uncertainty rank 1 is the least certain."""
    predicted = uncertainty.most_probable(probability)
    rank = np.empty(len(predicted), dtype=np.int64)
    rank[uncertainty.ranked(probability)] = np.arange(1, len(predicted) + 1)
    return {
        "class": [str(classes[k]) for k in predicted],
        **{f"probability of {name}": p.tolist() for name, p in zip(classes, probability.T, strict=True)},
        "label variance": uncertainty.label_variance(probability).tolist(),
        "uncertainty rank": rank.tolist(),
        "Monte-Carlo error": error[np.arange(len(predicted)), predicted].tolist(),
    }


def _summary(classifier: GraphClassifier, content: Content, record: dict[str, Any]) -> dict[str, Any]:
    """A short summary of the fit, for a person or a program."""
    p = classifier.label_distributions_
    predicted, confusion = uncertainty.most_probable(p), content.confusion
    return {
        "rows": len(p),
        "labeled": len(classifier.labels_.nodes),
        "found": dict(zip(content.classes, content.found, strict=True)),
        "accuracy": None if confusion is None else float(np.trace(confusion) / confusion.sum()),
        "least_certain": [
            {
                "row": content.rows.names[node],
                "class": content.classes[predicted[node]],
                "probability": float(p[node, predicted[node]]),
            }
            for node in content.least_certain[:N_LISTED]
        ],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["diagnostics"],
    }


def _finite(value: float) -> float | None:
    """Round for JSON, with None for NaN and infinity, which it lacks."""
    return round(float(value), 4) if np.isfinite(value) else None
