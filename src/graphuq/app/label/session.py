"""Requests of a page in; JSON-ready answers about the rows, the model and its progress out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.app.label.adviser import Adviser, Situation
from graphuq.app.label.look import Look
from graphuq.app.label.store import ABOUT_ROWS, Event, Refused, Store
from graphuq.app.report.content import MAX_POINTS
from graphuq.app.report.plots import packed, sureness
from graphuq.app.shell import JOINERS, printable
from graphuq.app.tables.text import MISSING
from graphuq.classes import UNLABELED_TEXT, alike, differing
from graphuq.estimator import GraphClassifier
from graphuq.graph.distances import nearest_among

Array = NDArray[np.floating]

N_NEIGHBORS = 4
NEIGHBOR_CELLS = 3
MAX_SUSPICIOUS = 8
MAX_STARS = 3000  # most labels drawn on the map: the latest ones
PATIENCE = 0.4  # seconds that a page waits for up-to-date advice, before it gets a question from the previous one
MAX_NAME, MAX_CLASSES = 200, 60


class Session:
    """A table, people's answers about it and the predictions of the model; thread-safe."""

    def __init__(
        self,
        classifier: GraphClassifier | None,
        X: Array,
        given: dict[int, str],
        look: Look,
        store: Store,
        *,
        title: str = "",
    ) -> None:
        """`classifier` has the graph of X (`adviser.seen`); `given` are the labels in the table, by row.

        Without a classifier, as for an import, answers are recorded, but nothing is predicted or asked.
        """
        self.look, self.store, self.table_labels, self.title = look, store, given, title
        self._X = X
        if classifier is not None:
            shown = np.sort(np.random.default_rng(0).permutation(len(X))[:MAX_POINTS])
            self.adviser = Adviser(classifier, shown, self.situation, store.note_progress)

    # ---- current state --------------------------------------------------------------------------------
    def labels(self) -> dict[int, str]:
        """The class of every labeled row; answers take precedence over the table."""
        return {**self.table_labels, **self.store.tally.answers}

    def classes(self) -> list[str]:
        """All classes: those of the table, sorted, then those added, in order, then others named in answers."""
        tally = self.store.tally
        first = [*sorted(set(self.table_labels.values())), *tally.added]
        return list(dict.fromkeys([*first, *tally.answers.values()]))

    def situation(self) -> Situation:
        """Labels and askable rows for the model; skipped rows are askable only when no other is left."""
        given, tally = self.labels(), self.store.tally
        open_rows = np.ones(len(self._X), dtype=bool)
        open_rows[[*given, *tally.unsure]] = False
        fresh = open_rows.copy()
        fresh[list(tally.skipped)] = False
        return Situation(given, np.flatnonzero(fresh if fresh.any() else open_rows))

    # ---- actions --------------------------------------------------------------------------------------
    def do(
        self, key: str, tab: str, kind: str, row: int | None = None, name: str = "", *, again: bool = False
    ) -> None:
        """Record an action of a page (`Store.do`), unless it conflicts with the table.

        An undo also removes the class of the answer if the same page had added it and no row has it any more.
        """
        with self.store.lock:  # else another tab could remove the class in between
            if kind in ABOUT_ROWS:
                self._check_row(row)
                if row in self.table_labels and not again:
                    raise Refused("The table has a class for this row.")
            if kind == "answer" and name not in self.classes():
                raise Refused(f"{name!r} is none of the classes: add it first.")
            if kind == "add":
                name = checked_name(name)
                if name in self.classes() and name not in self.store.tally.added:
                    raise Refused(f"{name!r} is a class already.")
                others = (known for known in self.classes() if known != name and alike((known, name), "Classes"))
                if (other := next(others, None)) is not None:
                    how = differing((name, other))
                    raise Refused(
                        f"{name!r} differs from {other!r} only in {how}: choose that, or a name of its own."
                    )
                if len(self.classes()) >= MAX_CLASSES:
                    raise Refused(f"There are {MAX_CLASSES} classes, the most that can be told apart here.")
            if kind == "remove" and name in self.table_labels.values():
                raise Refused(f"{name!r} is a class of the table: change its labels one by one, or the table.")
            event = self.store.do(key, tab, kind, row, name or None, again=again)
            if kind == "undo":
                self._remove_unused(event)
        if kind != "add":
            self.tell()

    def tell(self) -> None:
        """Update the predictions, if there are any, after labels have changed."""
        if hasattr(self, "adviser"):
            self.adviser.tell()

    # ---- display --------------------------------------------------------------------------------------
    def question(self, tab: str) -> dict[str, Any] | None:
        """Reserve the next row to ask a tab about; None when all are done."""
        advice = self.adviser.wait(PATIENCE)
        row = self.store.reserve(tab, self._candidates(advice.ahead))
        return None if row is None else self.describe(row)

    def describe(self, row: int) -> dict[str, Any]:
        """All that is shown of a row: its content, the predicted probabilities, and its nearest labeled rows."""
        self._check_row(row)
        place = {name: k for k, name in enumerate(self.classes())}
        labels = {row: place[name] for row, name in self.labels().items() if name in place}
        labeled = np.array([other for other in labels if other != row], dtype=np.int64)
        nearest = nearest_among(np.asarray(self._X, float), np.array([row]), labeled, N_NEIGHBORS)[0].tolist()
        return {
            "row": row,
            **self._appearance(row),
            "curves": self.look.curves(row),
            "given": labels.get(row, -1),
            "p": self._probabilities(row),
            "neighbors": [
                {"row": other, **self._appearance(other, NEIGHBOR_CELLS), "class": labels[other]}
                for other in nearest
            ],
        }

    def state(self) -> dict[str, Any]:
        """Status for the page: counts, map colors, progress so far, suspicious labels, advice."""
        adviser, tally, labels = self.adviser, self.store.tally, self.labels()
        names, now = self.classes(), adviser.now
        counts = Counter(labels.values())
        return {
            "title": self.title,
            "version": now.version,
            "layout": adviser.layout,
            "busy": adviser.busy,
            "failure": adviser.failure,
            "classes": [
                {"name": name, "labels": counts[name], "removable": name in tally.added} for name in names
            ],
            "rows": adviser.n_rows,
            "labels": len(labels),
            "unsure": len(tally.unsure),
            "skipped": len(tally.skipped),
            "map": self._map(names),
            "stars": self._stars(labels, names),
            "progress": self.store.progress(),
            "suspicious": self._suspicious(names),
            "advice": self._advice(counts),
        }

    def layout(self) -> dict[str, Any]:
        """Positions of the rows on the map."""
        adviser = self.adviser
        return {
            "layout": adviser.layout,
            "rows": adviser.shown.tolist(),
            "names": [self.look.names[row] for row in adviser.shown],
            "x": _steps(adviser.coordinates[adviser.shown, 0], np.uint16),
            "y": _steps(adviser.coordinates[adviser.shown, 1], np.uint16),
        }

    # ---- within ---------------------------------------------------------------------------------------
    def _check_row(self, row: int | None) -> None:
        if row is None or not 0 <= row < len(self._X):
            raise Refused(f"There is no row {row}.")

    def _remove_unused(self, undo: Event) -> None:
        name, store = undo.name, self.store
        added = any((each.tab, each.kind, each.name) == (undo.tab, "add", name) for each in store.events())
        if added and name in store.tally.added and name not in self.labels().values():
            store.do(f"{undo.key} class", undo.tab, "remove", name=name)

    def _candidates(self, ahead: tuple[int, ...]) -> Iterator[int]:
        """Rows to ask about: the best, then the most uncertain on the map, then all others, skipped ones last.

        The others come in random order: a table may be sorted by what is asked, and the first learning takes a while.
        """
        askable = self.situation().askable
        allowed = set(askable.tolist())
        yield from (row for row in ahead if row in allowed)
        if (p := self.adviser.now.shown) is not None:
            yield from (row for row in self.adviser.shown[uncertainty.ranked(p)].tolist() if row in allowed)
        yield from np.random.default_rng(0).permutation(askable).tolist()
        yield from self.store.tally.skipped

    def _probabilities(self, row: int) -> list[tuple[int, float]]:
        """Class indices and their probabilities, most probable first."""
        classifier = self.adviser.now.classifier
        if classifier is None:
            return []
        p, known = classifier.posterior_.probability([row])[0], self.classes()
        order, names = np.argsort(-p, kind="stable"), classifier.classes_.tolist()
        return [(known.index(names[k]), round(float(p[k]), 6)) for k in order if names[k] in known]

    def _appearance(self, row: int, most: int | None = None) -> dict[str, Any]:
        """Name, cells and picture of a row."""
        look = self.look
        shown: dict[str, Any] = {"name": look.names[row], "cells": look.cells(row, most)}
        if look.pictures is not None:
            height, width = look.pictures.shape[1:]
            shown["gray"] = {"height": height, "width": width, "data": packed(look.pictures[row])}
        if look.files is not None and str(look.files[row]):
            shown["file"] = str(look.files[row])
        return shown

    def _map(self, names: list[str]) -> dict[str, str] | None:
        """The most probable class at each row of the map, and its confidence from 0 to 255."""
        now = self.adviser.now
        if now.classifier is None or now.shown is None:
            return None
        p = now.shown
        number = np.array(
            [names.index(name) if name in names else 255 for name in now.classifier.classes_.tolist()]
        )
        sure = sureness(uncertainty.confidence(p), p.shape[1])
        return {
            "class": packed(number[uncertainty.most_probable(p)].astype(np.uint8)),
            "sure": _steps(sure, np.uint8),
        }

    def _stars(self, labels: dict[int, str], names: list[str]) -> list[tuple[int, float, float, int]]:
        """Labeled rows: row, position on the map, and class index."""
        xy = self.adviser.coordinates
        rows = [row for row, name in labels.items() if name in names][-MAX_STARS:]
        return [
            (row, round(float(xy[row, 0]), 4), round(float(xy[row, 1]), 4), names.index(labels[row]))
            for row in rows
        ]

    def _suspicious(self, names: list[str]) -> list[dict[str, Any]]:
        """Labels that contradict the others, unless changed since this was computed."""
        advice, labels = self.adviser.advice, self.labels()
        doubts = advice.suspicious
        if doubts is None or self.adviser.now.classifier is None:
            return []
        entries = []
        for i in doubts.clear().tolist():
            row = int(doubts.nodes[i])
            pair = [advice.classes[k] for k in (int(doubts.y[i]), int(doubts.likelier[i]))]
            if labels.get(row) == pair[0] and {*pair} <= {*names}:
                entries.append({
                    "row": row, "name": self.look.names[row], "given": names.index(pair[0]),
                    "likelier": names.index(pair[1]), "probability": round(float(doubts.rival[i]), 4),
                })  # fmt: skip
        return entries[:MAX_SUSPICIOUS]

    def _advice(self, counts: Counter[str]) -> list[str]:
        """Advice on what to do next, in sentences."""
        if len(counts) < 2:
            one = next(iter(counts), None)
            have = "No row has a class yet" if one is None else f"All labels so far are of one class, {one!r}"
            then = "predictions need labels of two classes. Until then the questions are spread over the data."
            return [f"{have}: {then}"]
        if not self.situation().askable.size:
            return ["Every row was asked about. There is nothing left to do."]
        gain = self.adviser.advice.gain
        if gain is None:
            return ["Computing how much more answers would help."]
        return [str(gain)]


def checked_name(name: str) -> str:
    """Normalize the name of a class; Refused, with the reason, if it cannot be one."""
    name = " ".join(name.split()).strip(f" {JOINERS}")
    if not name:
        raise Refused("A class needs a name.")
    if len(name) > MAX_NAME:
        raise Refused(f"A class can have {MAX_NAME} letters at most, and this one has {len(name):,}.")
    if printable(name) != name:
        raise Refused("The name of a class holds letters that cannot be shown.")
    if name.lower() in MISSING or name in UNLABELED_TEXT:
        raise Refused(f"{name!r} marks rows without a class in a table: choose another name.")
    return name


def _steps(values: Array, kind: Any) -> str:
    """Numbers from 0 to 1 scaled to an integer type and packed as text."""
    return packed(np.round(np.asarray(values) * np.iinfo(kind).max).astype(kind))
