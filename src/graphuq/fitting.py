"""A table on disk in; a folder with every row's answer, the model and a report out; and answers for new tables."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import folder
from graphuq.classes import Labels, read_labels
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_file
from graphuq.posterior import LabelStatistics
from graphuq.report.content import MAX_CELLS, Rows, collect
from graphuq.report.page import render
from graphuq.tables import Encoding, Table, fit_encoding, read_table, scaling_in_words, write_csv
from graphuq.wording import vague, verdict, words_of_the_shell

REPORT, ANSWERS, ROWS = "report.html", "predictions.csv", "rows.npz"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "jax")


@dataclass(frozen=True)
class Question:
    """What is asked of a table.

    Attributes:
        table: the file.
        label: the column with the class of some rows.
        row_id: the column that names rows; by default they are counted from 1.
        truth: a column with the true class of rows, to judge the answers by.
        columns: the columns to use as features; by default all others.
        drop: columns to leave out.
        categories: features that hold categories; ("all",) for every column of text.
        scale, impute: see `fit_encoding`.
        unlabeled: a further text that marks an unlabeled row.
        separator: between the cells of a text file, by default as its name ends.
    """

    table: Path
    label: str
    row_id: str | None = None
    truth: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    scale: str = "auto"
    impute: str | None = None
    unlabeled: str = ""
    separator: str | None = None

    def __post_init__(self) -> None:
        asked = {"--label": self.label, "--id": self.row_id, "--truth": self.truth}
        given = [(name, option) for option, name in asked.items() if name is not None]
        roles: dict[str, str] = {}
        for name, option in [*given, *((name, "--column") for name in self.columns)]:
            if name in roles:
                raise ValueError(f"Column {name!r} is given as {roles[name]} and again as {option}: use it once.")
            roles[name] = option
        for name in self.drop:
            if roles.get(name) == "--column":
                raise ValueError(f"Column {name!r} is given as --column and as --drop: use it, or leave it out.")


@dataclass(frozen=True, eq=False)
class Data:
    """A table as the classifier and the report need it; `notes` say what a person may have meant otherwise."""

    X: NDArray[np.float64]
    y: NDArray[Any]  # text, "" where there is no label
    encoding: Encoding
    rows: Rows
    notes: list[str]


def read_data(question: Question) -> Data:
    """Read the table, and doubt it."""
    table = read_table(question.table, separator=question.separator)
    y = table.text(question.label)
    if question.unlabeled:
        y = np.where(y == question.unlabeled, "", y)
    notes = _missing_words(table, question.label, "unlabeled", unless=question.unlabeled)
    try:
        labels = read_labels(y)
    except ValueError as error:
        raise ValueError(" ".join([f"Column {question.label!r}: {error}", *notes])) from None
    if len(labels.nodes) == table.n_rows:
        raise ValueError(
            f"Every row of {table.source.name} has a class in {question.label!r}, so there is nothing to find "
            "out: leave that cell empty in the rows in question."
        )
    names = _features(table, question)
    categories = question.categories
    if categories == ("all",):
        categories = tuple(name for name in names if table.column(name).dtype.kind != "f")
    for name in categories:
        table.column(name)
        if name not in names:
            raise ValueError(f"Column {name!r} is given as --category, and it is not one of the features.")
        notes += _missing_words(table, name, "missing")
    encoding = fit_encoding(table, names, categories=categories, scale=question.scale, impute=question.impute)
    truth = None
    if question.truth is not None:
        truth = _truth(table.text(question.truth), labels, question.truth)
        notes += _missing_words(table, question.truth, "not known")
    return Data(encoding.encode(table), y, encoding, _rows(table, names, question.row_id, truth), notes)


def fit_folder(
    question: Question, classifier: GraphClassifier, out: Path, *, replace: bool = False
) -> dict[str, Any]:
    """Fit, and write predictions.csv, report.html, the model and run.json; returns a summary.

    `out` appears whole or not at all.
    """
    began = time.perf_counter()
    with folder.whole_folder(out, replace=replace) as part:
        data = read_data(question)
        with words_of_the_shell(data.rows.names) as notes:
            classifier.fit(data.X, data.y)
        posterior = classifier.posterior_
        statistics, probability = posterior.labels(), classifier.label_distributions_[:, 1]
        with (part / ANSWERS).open("w", encoding="utf-8", newline="") as file:
            write_csv(file, _answers(classifier, data.rows, statistics, probability))
        folder.save_model(classifier, part)
        _save_rows(data.rows, part / ROWS)
        diagnosis = posterior.diagnostics()
        record = {
            "title": f"{question.label} of every row in {question.table.name}",
            "table": question.table.name,
            "label": question.label,
            "row_id": question.row_id,
            "encoding": data.encoding.to_json(),
            "scaling": scaling_in_words(data.encoding, data.X),
            "seed": classifier.random_state,
            "seconds": round(time.perf_counter() - began, 3),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
            "diagnostics": {
                "converged": diagnosis.converged,
                "r_hat": _finite(diagnosis.worst_r_hat),
                "effective_draws": _finite(diagnosis.ess_bulk.min()),
                "verdict": verdict(diagnosis),
                "warnings": [*data.notes, *notes, *vague(classifier.hyperparameter_spread_)],
            },
        }
        (part / REPORT).write_text(_report(classifier, data.rows, record), encoding="utf-8")
        folder.seal(classifier, part, record)
    return _summary(classifier, data.rows, record, probability)


def predict_table(
    model: Path, table: Path, *, separator: str | None = None
) -> tuple[dict[str, Sequence[Any]], list[str]]:
    """The answers for the rows of a new table, by column, from the model in a folder; and what there is to note."""
    classifier = folder.load_model(model)
    run = folder.read_run(model)
    data = read_table(table, separator=separator)
    X = Encoding.from_json(run["encoding"]).encode(data)
    names = _names(data, run["row_id"] if run["row_id"] in data.columns else None)
    with words_of_the_shell(names) as notes:
        posterior, nodes = classifier.posterior_at(X)
        answers = _columns(classifier.classes_, names, posterior.labels(nodes), posterior.probability(nodes))
    return answers, notes


def write_report(model: Path, out: Path | None = None) -> Path:
    """Write the report of a fitted folder anew, into it or elsewhere."""
    run = folder.read_run(model)
    folder.check_files(model, run, (ROWS,))
    classifier, rows = folder.load_model(model), _load_rows(model / ROWS)
    target = model / REPORT if out is None else out
    page = _report(classifier, rows, run)
    with whole_file(target) as part:
        part.write_text(page, encoding="utf-8")
    if out is None:
        run["files"][REPORT] = folder.sha256(target)
        folder.write_run(model, run)
    return target


def _report(classifier: GraphClassifier, rows: Rows, record: dict[str, Any]) -> str:
    settings = {
        "table": record["table"],
        "label": record["label"],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["versions"],
    }
    notes = record["diagnostics"]["warnings"]
    return render(collect(classifier, rows, title=record["title"], settings=settings, notes=notes))


def _features(table: Table, question: Question) -> list[str]:
    """The columns used as features."""
    asked = (question.label, question.row_id, question.truth)
    for name in (*question.columns, *question.drop, *(name for name in asked if name is not None)):
        table.column(name)
    if question.columns:
        names = list(question.columns)
    else:
        names = [name for name in table.columns if name not in asked and name not in question.drop]
    if not names:
        raise ValueError(f"{table.source.name} has no column left to use as a feature.")
    return names


def _missing_words(table: Table, name: str, role: str, *, unless: str = "") -> list[str]:
    """A note for each word that counts as missing where it may be the name of a class."""
    return [
        f"Column {name!r} holds {word!r} in {n:,} row{'s' if n > 1 else ''}, which count{'' if n > 1 else 's'} as "
        f"{role}: if it names a class, give the class another name."
        for word, n in table.missing_words.get(name, {}).items()
        if word != unless
    ]


def _truth(text: NDArray[Any], labels: Labels, name: str) -> NDArray[np.int64]:
    strange = ~np.isin(text, [*labels.classes, ""])
    if strange.any():
        raise ValueError(
            f"Column {name!r} holds {str(text[strange][0])[:40]!r}, which is none of the classes "
            f"{labels.classes[0]!s} and {labels.classes[1]!s}."
        )
    return np.where(text == labels.classes[1], 1, np.where(text == labels.classes[0], -1, 0))


def _names(table: Table, row_id: str | None) -> list[str]:
    """What rows are called: the cells of a column, each once, or numbers from 1."""
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


def _rows(table: Table, names: Sequence[str], row_id: str | None, truth: NDArray[np.int64] | None) -> Rows:
    single = [name for name in names if table.column(name).ndim == 1][:MAX_CELLS]
    blocks = [table.column(name) for name in names if table.column(name).ndim == 3]
    columns = [table.text(name) for name in single]
    return Rows(
        names=_names(table, row_id),
        columns=single,
        cells=[[str(cell)[:200] for cell in cells] for cells in zip(*columns, strict=True)],
        pictures=_gray(blocks[0]) if len(blocks) == 1 else None,
        truth=truth,
    )


def _gray(pictures: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Gray values from the least to the largest number that occurs."""
    low, high = np.nanmin(pictures), np.nanmax(pictures)
    return (255 * (np.nan_to_num(pictures, nan=low) - low) / max(high - low, 1e-300)).astype(np.uint8)


def _answers(
    classifier: GraphClassifier, rows: Rows, statistics: LabelStatistics, probability: NDArray[np.float64]
) -> dict[str, Sequence[Any]]:
    columns = _columns(classifier.classes_, rows.names, statistics, probability)
    labeled = np.isin(np.arange(len(probability)), classifier.labels_.nodes)
    columns["labeled"] = ["yes" if known else "no" for known in labeled]
    return columns


def _columns(
    classes: NDArray[Any], names: Sequence[str], statistics: LabelStatistics, probability: NDArray[np.float64]
) -> dict[str, Sequence[Any]]:
    """One entry a row; rank 1 is the least certain."""
    rank = np.empty(len(probability), dtype=np.int64)
    rank[np.argsort(np.abs(probability - 0.5), kind="stable")] = np.arange(1, len(probability) + 1)
    return {
        "row": list(names),
        "class": [str(classes[int(p > 0.5)]) for p in probability],
        f"probability of {classes[0]}": (1 - probability).tolist(),
        f"probability of {classes[1]}": probability.tolist(),
        "label mean": statistics.mean.tolist(),
        "label variance": statistics.variance.tolist(),
        "uncertainty rank": rank.tolist(),
        "Monte-Carlo error": statistics.error.tolist(),
    }


def _summary(
    classifier: GraphClassifier, rows: Rows, record: dict[str, Any], probability: NDArray[np.float64]
) -> dict[str, Any]:
    """The outcome in a few numbers, for a person or a program."""
    unlabeled = np.setdiff1d(np.arange(len(probability)), classifier.labels_.nodes)
    found = classifier.transduction_[unlabeled]
    least = unlabeled[np.argsort(np.abs(probability[unlabeled] - 0.5), kind="stable")][:10]
    known = unlabeled if rows.truth is None else unlabeled[rows.truth[unlabeled] != 0]
    right = None
    if rows.truth is not None and known.size:
        right = float(np.mean((probability[known] > 0.5) == (rows.truth[known] > 0)))
    return {
        "rows": len(probability),
        "labeled": len(classifier.labels_.nodes),
        "found": {str(name): int(np.sum(found == name)) for name in classifier.classes_},
        "accuracy": right,
        "least_certain": [
            {
                "row": rows.names[node],
                "class": str(classifier.transduction_[node]),
                "probability": float(max(p, 1 - p)),
            }
            for node, p in zip(least, probability[least], strict=True)
        ],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["diagnostics"],
    }


def _finite(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return round(float(value), 4) if np.isfinite(value) else None


def _save_rows(rows: Rows, path: Path) -> None:
    """Text as JSON, since an array of text is as wide as its longest cell; pictures as they are."""
    text = {
        "names": list(rows.names),
        "columns": list(rows.columns),
        "cells": [list(cells) for cells in rows.cells],
        "truth": None if rows.truth is None else rows.truth.tolist(),
    }
    arrays: dict[str, Any] = {"text": np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)}
    if rows.pictures is not None:
        arrays["pictures"] = rows.pictures
    np.savez_compressed(path, **arrays)


def _load_rows(path: Path) -> Rows:
    with np.load(path, allow_pickle=False) as file:
        text = json.loads(file["text"].tobytes())
        pictures = file.get("pictures")
    truth = text.pop("truth")
    return Rows(**text, pictures=pictures, truth=None if truth is None else np.array(truth))
