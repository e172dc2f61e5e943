"""Answers in; CSV files or Label Studio's JSON, for exchange with other tools, out; and back."""

from __future__ import annotations

import io
import json
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from graphuq import uncertainty
from graphuq.app.fitting import ROW
from graphuq.app.label.session import MAX_CLASSES, Session, checked_name
from graphuq.app.label.store import Refused
from graphuq.app.tables.read import read_table
from graphuq.app.tables.text import USUAL, Marks, ending, spelled
from graphuq.app.tables.write import beside, called_ours, guarded, unguarded, write_csv
from graphuq.classes import UNLABELED_TEXT, listed
from graphuq.files import check_target, write_text

EXPORTED = (".csv", ".json")
MAX_FILE = 512 * 2**20  # bytes
MODEL_VERSION = "graphuq"


def export(
    session: Session,
    target: Path,
    *,
    label: str,
    row_id: str | None = None,
    force: bool = False,
    marks: Marks = USUAL,
) -> str:
    """Write `text_of` to a file, CSV or JSON depending on its ending."""
    check_export(target, force)
    session.adviser.settled()
    write_text(target, text_of(session, target.suffix.lower(), label=label, row_id=row_id, marks=marks))
    return f"{len(session.labels()):,} labels of {session.adviser.n_rows:,} rows: {target}"


def text_of(session: Session, kind: str, *, label: str, row_id: str | None = None, marks: Marks = USUAL) -> str:
    """The labels so far, and the prediction for every row, as the text of a ".csv" or ".json" file."""
    if kind == ".json":
        return json.dumps(list(_tasks(session, label)), ensure_ascii=False, indent=1, allow_nan=False)
    labels, file = session.labels(), io.StringIO()
    given = [labels.get(row, "") for row in range(session.adviser.n_rows)]
    own = {row_id or _rows_called(label): session.look.names, label: given}
    write_csv(file, beside(own, _columns(session)), marks)
    return file.getvalue()


def take(session: Session, source: Path, *, label: str, row_id: str | None) -> str:
    """Import answers from a file, as written by `export` or Label Studio; labeled rows keep their class."""
    check_source(source)
    places = {name: row for row, name in enumerate(session.look.names)}
    answers = read_answers(source, label, row_id)
    classes = session.classes()
    if ending(source) == ".csv":
        answers = [(_meant(row, places), _meant(name, classes)) for row, name in answers]
    unknown = next((name for name, _ in answers if name not in places), None)
    if unknown is not None:
        raise ValueError(f"{source.name} names the row {unknown!r}, which the table does not have.")
    names = {name: checked_name(name) for _, name in answers}  # all are checked before any is recorded
    seen: dict[str, str] = {}
    for which, name in answers:
        if seen.setdefault(which, name) != name:
            raise ValueError(
                f"{source.name} has two classes for the row {which!r}, {seen[which]!r} and {name!r}: choose one."
            )
    labels, before = session.labels(), len(session.store.events())
    fresh = {places[row]: names[name] for row, name in answers if places[row] not in labels}
    known = {*classes, *fresh.values()}
    if len(known) > MAX_CLASSES:
        raise ValueError(
            f"With those of {source.name} there are {len(known):,} classes, and at most {MAX_CLASSES} can be told apart."
        )
    for row, name in fresh.items():
        if name not in session.classes():
            try:
                session.do(f"import class {name} {before}", "import", "add", name=name)
            except Refused as error:
                raise Refused(f"{source.name}, row {session.look.names[row]!r}: {error}") from None
        # again: also replaces a "not sure" of a person
        session.store.do(f"import row {row} {before}", "import", "answer", row, name, again=True, asked=False)
    session.tell()
    message = f"{len(fresh):,} answer{'s' if len(fresh) != 1 else ''} taken from {source.name}"
    new = [repr(name) for name in session.classes() if name not in classes] if classes else []
    message += f"; new among the classes: {listed(new)}" if new else ""
    kept = len(seen) - len(fresh)
    return message + (f"; rows that had a class already, and keep it: {kept:,}" if kept else "")


def check_export(target: Path, force: bool, *read: Path) -> None:
    """Refuse a target that cannot be written, before any work; files that are `read` are never replaced."""
    if target.suffix.lower() not in EXPORTED:
        raise ValueError(f"{target.name} must end in .csv, or in .json for Label Studio.")
    check_target(target, force, *read)


def check_source(source: Path) -> None:
    """Refuse a file that is missing, too large or of the wrong type, before any work."""
    if not source.is_file():
        raise ValueError(f"There is no file {source}.")
    if ending(source) not in EXPORTED or source.name.lower().endswith(".json.gz"):
        raise ValueError(f"{source.name} must end in .csv or .csv.gz, or in .json for Label Studio.")
    if source.stat().st_size > MAX_FILE:
        raise ValueError(f"{source.name} is larger than {MAX_FILE // 2**20} MB: take it in pieces.")


def read_answers(source: Path, label: str, row_id: str | None) -> list[tuple[str, str]]:
    """Row names and classes of all answers in a file."""
    read = _from_json if ending(source) == ".json" else _from_csv
    try:
        return list(read(source, label, row_id))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{source.name} cannot be read: {error}.") from None


def _rows_called(label: str) -> str:
    """Column of row names where the table has none: a name different from that of the label column."""
    return called_ours(ROW, {label})


def _meant(cell: str, known: Container[str]) -> str:
    """Cell text before it was guarded against formulas, 1.0 as 1; unchanged if only the guarded form is known."""
    plain = spelled(unguarded(cell), known)
    return cell if cell in known and plain not in known else plain


def _columns(session: Session) -> dict[str, list[Any]]:
    """Per row: status, most probable class, its probability, and the label variance; "" where unknown."""
    tally, n_rows, classifier = session.store.tally, session.adviser.n_rows, session.adviser.now.classifier
    kinds = {
        "skipped": tally.skipped, "not sure": tally.unsure, "in the table": session.table_labels, "answered": tally.answers
    }  # fmt: skip
    # later kinds take precedence: an answer over the table
    status = {row: kind for kind, rows in kinds.items() for row in rows}
    predicted: dict[str, list[Any]] = {name: [""] * n_rows for name in ("class", "probability", "uncertainty")}
    if classifier is not None:
        p = classifier.label_distributions_
        names = classifier.classes_[uncertainty.most_probable(p)].tolist()
        numbers = uncertainty.confidence(p).tolist(), uncertainty.label_variance(p).tolist()
        predicted = dict(zip(predicted, (names, *numbers), strict=True))
    return {"status": [status.get(row, "") for row in range(n_rows)], **predicted}


def _tasks(session: Session, label: str) -> Iterator[dict[str, Any]]:
    """Label Studio tasks: data shown, annotations by people, and predictions with their score.

    The uncertainty is also a field of the data, by which tasks can be sorted.
    """
    labels, look, called = session.labels(), session.look, _rows_called(label)

    def result(name: str) -> list[dict[str, Any]]:
        return [{"from_name": label, "to_name": called, "type": "choices", "value": {"choices": [name]}}]

    for row, (status, name, score, variance) in enumerate(zip(*_columns(session).values(), strict=True)):
        data: dict[str, Any] = {called: look.names[row], "cells": dict(look.cells(row))}
        task: dict[str, Any] = {"id": row + 1, "data": data, "annotations": [], "predictions": []}
        if name:
            data["uncertainty"] = variance
            prediction = {"model_version": MODEL_VERSION, "score": score, "uncertainty": variance}
            task["predictions"] = [{**prediction, "result": result(name)}]
        if row in labels:
            task["annotations"] = [{"result": result(labels[row]), "was_cancelled": False}]
        elif status:
            task["annotations"] = [{"result": [], "was_cancelled": True}]
        yield task


def _from_csv(source: Path, label: str, row_id: str | None) -> Iterator[tuple[str, str]]:
    """Answers in a CSV file, read like a table, so that classes are named as there."""
    called = _rows_called(label)

    def written(*names: str | None) -> list[str]:
        return [cell for name in names if name for cell in (guarded(name).strip(), name)]

    def column(*names: str | None) -> str | None:
        return next((cell for cell in written(*names) if cell in table.columns), None)

    table = read_table(source, as_text=written(row_id, called, label))

    rows, classes = column(row_id, called), column(label)
    if rows is None or classes is None:
        raise ValueError(f"{source.name} needs the columns {row_id or called!r} and {label!r}.")
    for row, name in zip(table.text(rows), table.text(classes), strict=True):
        if name not in UNLABELED_TEXT:
            yield row, name


def _from_json(source: Path, label: str, row_id: str | None) -> Iterator[tuple[str, str]]:
    """Answers in Label Studio's JSON, or in its JSON-MIN, where the choice is a field beside the data."""
    tasks, called = json.loads(source.read_text(encoding="utf-8")), _rows_called(label)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ValueError(f"{source.name} is not an export of Label Studio: a list of tasks is needed.")
    for task in tasks:
        data = task.get("data") if isinstance(task.get("data"), dict) else task
        row = next((data[name] for name in (row_id, called) if name and data.get(name) is not None), None)
        if row is None:
            raise ValueError(
                f"A task in {source.name} has no field {row_id or called!r} in its data, which names the row."
            )
        for choice in _choices(task, label) if "annotations" in task else [data.get(label)]:
            if isinstance(choice, str) and choice.strip():
                yield str(row), choice.strip()


def _choices(task: dict[str, Any], label: str) -> Iterator[Any]:
    """What was chosen in the annotations that were not cancelled: for the label, if it has a control of its own."""
    for annotation in task["annotations"] if isinstance(task["annotations"], list) else []:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        results = [result for result in annotation.get("result") or [] if isinstance(result, dict)]
        for result in [each for each in results if each.get("from_name") == label] or results:
            value = result.get("value")
            choices = value.get("choices") if isinstance(value, dict) else None
            yield from choices if isinstance(choices, list) else []
