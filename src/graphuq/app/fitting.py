"""A table on disk in; a folder with every row's answer, the model and a report out; and answers for new tables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.app import folder
from graphuq.app.report.content import MAX_CELLS, Content, Rows, collect
from graphuq.app.report.page import render
from graphuq.app.tables import Encoding, Marks, Table, fit_encoding, read_table, scaling_in_words, write_csv
from graphuq.app.tables.doubts import filled_in, notes_on
from graphuq.app.wording import vague, words_of_the_shell
from graphuq.classes import LIKE_NONE, Labels, in_words, read_labels
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_file, whole_folder
from graphuq.settings import refuse_ignored
from graphuq.stages import versions

Array = NDArray[np.float64]

N_LISTED = 10
MOST_LONELY = 20  # classes of one label each: more are numbers, or names of rows


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
            if name in roles:
                raise ValueError(
                    f"Column {name!r} is given as {roles[name]} and as --drop: use it, or leave it out."
                )
            if self.columns:
                raise ValueError(f"--drop {name} changes nothing: --column says which columns are used.")


@dataclass(frozen=True, eq=False)
class Data:
    """A table as the classifier and the report need it; `notes` say what a person may have meant otherwise."""

    X: Array
    y: NDArray[Any]  # text, "" where there is no label
    encoding: Encoding
    rows: Rows
    notes: list[str]
    table: Table


def read_data(question: Question, *, any_labels: bool = False) -> Data:
    """Read the table, and doubt it; `any_labels` where a person is yet to be asked, so that there may be none."""
    table = read_table(question.table, separator=question.separator)
    if any_labels and not get_close_matches(
        question.label, table.columns, n=1, cutoff=0.8
    ):  # and no slip of the pen
        table = replace(table, columns={**table.columns, question.label: np.full(table.n_rows, "", dtype=object)})
    y = table.text(question.label)
    if question.unlabeled:
        if question.unlabeled not in (*y, *table.missing_words.get(question.label, ())):
            raise ValueError(
                f"No row holds {question.unlabeled!r} in column {question.label!r}: leave out --unlabeled."
            )
        y = np.where(y == question.unlabeled, "", y)
    notes = table.notes + _missing_words(table, question.label, "unlabeled", unless=question.unlabeled)
    labels = None if any_labels else _labels(y, table, question, notes)
    names = _features(table, question)
    table = replace(table, row_names=_names(table, question.row_id))
    categories = question.categories
    if categories == ("all",):
        categories = tuple(name for name in names if table.column(name).dtype.kind != "f")
    for name in categories:
        table.column(name)
        if name not in names:
            raise ValueError(f"Column {name!r} is given as --category, and it is not one of the features.")
        notes += _missing_words(table, name, "missing")
    notes += [] if labels is None else notes_on(table, names, categories, labels)
    encoding = fit_encoding(table, names, categories=categories, scale=question.scale, impute=question.impute)
    notes += filled_in(table, names)
    truth = None
    if question.truth is not None and labels is not None:
        truth = _truth(table.text(question.truth), labels, question)
        notes += _missing_words(table, question.truth, "not known")
    rows = _rows(table, names, truth)
    return Data(encoding.encode(table), y, encoding, rows, notes, table)


def fit_folder(
    question: Question,
    classifier: GraphClassifier,
    out: Path,
    *,
    replace: bool = False,
    tell: Callable[[str], None] = lambda stage: None,
) -> dict[str, Any]:
    """Fit, and write predictions.csv, report.html, the model and run.json; returns a summary.

    `out` appears whole or not at all. `tell` is called with what begins, beside what a verbose classifier says itself.
    """
    began = time.perf_counter()
    folder.refuse_objects(classifier)
    with whole_folder(out, replace=replace, foreign=folder.foreign) as part:
        tell(f"reading {question.table.name} ...")
        data = read_data(question)
        with words_of_the_shell(data.rows.names) as notes:
            refuse_ignored(classifier, read_labels(data.y).n_classes)
            classifier.fit(data.X, data.y)
        seconds = time.perf_counter() - began
        tell(f"report and files, after {seconds:.0f} seconds ...")
        return write_results(part, question, data, classifier, notes=notes, seconds=seconds)


def write_results(
    part: Path, question: Question, data: Data, classifier: GraphClassifier, *, notes: list[str], seconds: float
) -> dict[str, Any]:
    """Write what a fitted classifier says of a table into a folder; returns a summary."""
    record: dict[str, Any] = {
        "title": f"{question.label} of {len(data.X):,} rows in {question.table.name}, from {len(classifier.labels_.nodes):,} known",
        "table": question.table.name,
        "label": question.label,
        "row_id": question.row_id,
        "encoding": data.encoding.to_json(),
        "scaling": scaling_in_words(data.encoding, data.X),
        "seed": classifier.random_state,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "diagnostics": {"warnings": [*data.notes, *notes, *vague(classifier.hyperparameter_spread_)]},
    }
    content = _content(classifier, data.rows, record)
    record["diagnostics"] |= {
        "converged": content.converged,
        "r_hat": _finite(max((each[2] for each in content.convergence), default=np.nan)),
        "effective_draws": _finite(min((each[3] for each in content.convergence), default=np.nan)),
        "verdict": content.verdict,
        "self_check": content.self_check,
        "suspicious_labels": None if content.suspicious is None else len(content.suspicious),
    }
    with (part / folder.ANSWERS).open("w", encoding="utf-8", newline="") as file:
        write_csv(file, _answers(classifier, data.rows.names), data.table.marks)
    (part / folder.REPORT).write_text(render(content), encoding="utf-8")
    folder.write(part, classifier, data.rows, record)
    return _summary(classifier, content, record)


def predict_table(
    model: Path, table: Path, *, separator: str | None = None, ignore_unknown: bool = False
) -> tuple[dict[str, Sequence[Any]], list[str], Marks]:
    """The answers for the rows of a new table, by column; what there is to note; and how that table is written."""
    classifier, _, record = folder.read(model)
    data = read_table(table, separator=separator)
    names = _names(data, record["row_id"] if record["row_id"] in data.columns else None)
    data = replace(data, row_names=names)
    encoding = Encoding.from_json(record["encoding"])
    X = encoding.encode(data, ignore_unknown=ignore_unknown)
    with words_of_the_shell(names) as notes:
        answers = _new_answers(classifier, names, X)
    return answers, [*data.notes, *encoding.unknown(data), *notes], data.marks


def write_report(model: Path, out: Path | None = None) -> Path:
    """Write the report of a fitted folder anew, into it or elsewhere."""
    target = model / folder.REPORT if out is None else out
    page = render(_content(*folder.read(model)))
    with whole_file(target) as part:
        part.write_text(page, encoding="utf-8")
    return target


def _content(classifier: GraphClassifier, rows: Rows, record: dict[str, Any]) -> Content:
    settings = {
        "table": record["table"],
        "label": record["label"],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["versions"],
    }
    notes = record["diagnostics"]["warnings"]
    return collect(classifier, rows, title=record["title"], settings=settings, notes=notes)


def _labels(y: NDArray[Any], table: Table, question: Question, notes: list[str]) -> Labels:
    """The labels of a column, of two classes or more, and not of every row; what is odd about them is noted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to warn of is noted in the fit
            labels = read_labels(y)
    except ValueError as error:
        raise ValueError(" ".join([f"Column {question.label!r}: {error}", *notes])) from None
    if len(labels.nodes) == table.n_rows:
        raise ValueError(
            f"Every row of {table.source.name} has a class in {question.label!r}, so there is nothing to find "
            f"out: leave that cell empty in the rows in question{_or_named(labels)}."
        )
    notes += _lonely(labels, question.label)
    return labels


def _or_named(labels: Labels) -> str:
    """What to say where a class is called as if it were none."""
    words = [str(name) for name in labels.classes if str(name).lower() in LIKE_NONE]
    return f", or say what stands for it: --unlabeled {quote(words[0])}" if words else ""


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


def _lonely(labels: Labels, column: str) -> list[str]:
    """A note on classes that hang on one label."""
    lonely = labels.classes[labels.counts() == 1]
    if not len(lonely):
        return []
    if len(lonely) == labels.n_classes > MOST_LONELY:
        raise ValueError(
            f"Column {column!r} holds something else in each of {len(lonely):,} rows: those are no classes, which "
            "several rows have in common."
        )
    told = f"Class {in_words(lonely)} has" if len(lonely) == 1 else f"Each of the classes {in_words(lonely)} has"
    return [f"{told} a single label: nothing would tell if it were a mistake. A second one helps most."]


def _truth(text: NDArray[Any], labels: Labels, question: Question) -> NDArray[np.int64]:
    """The number of the true class of each row, -1 where it is not known."""
    number = {"": -1, **{str(name): k for k, name in enumerate(labels.classes)}}
    strange = [str(name) for name in text if name not in number]
    if strange:
        raise ValueError(
            f"Column {question.truth!r} holds {strange[0][:40]!r}, and no row has that class in {question.label!r}, so "
            "it cannot be found: label one such row, or leave those cells empty."
        )
    return np.array([number[name] for name in text])


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


def _rows(table: Table, names: Sequence[str], truth: NDArray[np.int64] | None) -> Rows:
    single = [name for name in names if table.column(name).ndim == 1][:MAX_CELLS]
    blocks = [table.column(name) for name in names if table.column(name).ndim == 3]
    columns = [table.text(name) for name in single]
    return Rows(
        names=table.row_names,
        columns=single,
        cells=[[str(cell)[:200] for cell in cells] for cells in zip(*columns, strict=True)],
        pictures=_gray(blocks[0]) if len(blocks) == 1 else None,
        truth=truth,
    )


def _gray(pictures: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Gray values from the least to the largest number that occurs."""
    low, high = np.nanmin(pictures), np.nanmax(pictures)
    return (255 * (np.nan_to_num(pictures, nan=low) - low) / max(high - low, 1e-300)).astype(np.uint8)


def _answers(classifier: GraphClassifier, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The answers for the rows of the fit, by column."""
    probability, error = classifier.label_distributions_, classifier.label_errors_
    mean = classifier.posterior_.label_mean() if len(classifier.classes_) == 2 else None
    columns = _columns(classifier.classes_, names, probability, error, mean)
    labeled = np.isin(np.arange(len(probability)), classifier.labels_.nodes)
    return {**columns, "labeled": ["yes" if known else "no" for known in labeled]}


def _new_answers(classifier: GraphClassifier, names: Sequence[str], X: Array) -> dict[str, Sequence[Any]]:
    """The answers for the rows of another table; a row that was in the fit has the answer that it has there."""
    nodes, new, where = classifier.locate(X)
    known, posterior = nodes[~new], classifier.posterior_
    probability, error = np.empty((2, len(nodes), len(classifier.classes_)))
    probability[~new], error[~new] = classifier.label_distributions_[known], classifier.label_errors_[known]
    if where is not None:
        fresh = posterior.classes(where)
        probability[new], error[new] = classifier.like_nodes(where, fresh.probability), fresh.error
    mean = None
    if len(classifier.classes_) == 2:
        mean = np.empty(len(nodes))
        mean[~new] = posterior.label_mean(known)
        if where is not None:
            mean[new] = posterior.label_mean(where)
    return _columns(classifier.classes_, names, probability, error, mean)


def _columns(
    classes: NDArray[Any], names: Sequence[str], probability: Array, error: Array, mean: Array | None
) -> dict[str, Sequence[Any]]:
    """One entry a row; rank 1 is the least certain. Of two classes the paper's label mean (3.1) is told too."""
    answer = uncertainty.most_probable(probability)
    rank = np.empty(len(answer), dtype=np.int64)
    rank[uncertainty.ranked(probability)] = np.arange(1, len(answer) + 1)
    return {
        "row": list(names),
        "class": [str(classes[k]) for k in answer],
        **{f"probability of {name}": p.tolist() for name, p in zip(classes, probability.T, strict=True)},
        **({} if mean is None else {"label mean": mean.tolist()}),
        "label variance": uncertainty.label_variance(probability).tolist(),
        "uncertainty rank": rank.tolist(),
        "Monte-Carlo error": error[np.arange(len(answer)), answer].tolist(),
    }


def _summary(classifier: GraphClassifier, content: Content, record: dict[str, Any]) -> dict[str, Any]:
    """The outcome in a few numbers, for a person or a program."""
    p = classifier.label_distributions_
    answer, right = uncertainty.most_probable(p), content.confusion
    return {
        "rows": len(p),
        "labeled": len(classifier.labels_.nodes),
        "found": dict(zip(content.classes, content.found, strict=True)),
        "accuracy": None if right is None else float(np.trace(right) / right.sum()),
        "least_certain": [
            {
                "row": content.rows.names[node],
                "class": content.classes[answer[node]],
                "probability": float(p[node, answer[node]]),
            }
            for node in content.least_certain[:N_LISTED]
        ],
        "scaling": record["scaling"],
        "seconds": record["seconds"],
        **record["diagnostics"],
    }


def _finite(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return round(float(value), 4) if np.isfinite(value) else None
