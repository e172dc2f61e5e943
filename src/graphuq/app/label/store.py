"""People's answers in; durable events on disk, and the current state rebuilt from them after a crash, out.

One SQLite file in WAL mode, synced at each answer. Events are append-only: an undo is an event too. The current
state is the sum of the events, so a process killed at any moment loses nothing and counts nothing twice. Each row
has a checksum, and that of an event also covers the checksum of the event before: a corrupted file is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = "graphuq answers 2"
ABOUT_ROWS, ABOUT_CLASSES = ("answer", "skip", "unsure"), ("add", "remove")
# Seconds of silence after which a tab loses the reservation of its row.
SILENT = 300.0
_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL, seal TEXT NOT NULL);
CREATE TABLE events(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, at TEXT NOT NULL, tab TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('answer', 'skip', 'unsure', 'undo', 'add', 'remove')),
  row INTEGER, class TEXT, target INTEGER REFERENCES events(id), seal TEXT NOT NULL);
CREATE TABLE reserved(row INTEGER PRIMARY KEY, tab TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE progress(labels INTEGER PRIMARY KEY, variance REAL NOT NULL, log_loss REAL, seal TEXT NOT NULL);
"""


class Event(NamedTuple):
    """One action of a person; `key`, chosen by the page, is unique to it, so that a resent action counts once."""

    id: int
    key: str
    at: str
    tab: str
    kind: str
    row: int | None
    name: str | None  # class name
    target: int | None  # for an undo: id of the event that it reverts


@dataclass
class Tally:
    """Current state: the sum of the events.

    Attributes:
        answers: class of each answered row.
        unsure: rows that a person could not classify.
        skipped: rows put off, in the order in which they were.
        added: classes that were added, in order.
    """

    answers: dict[int, str] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    skipped: dict[int, None] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)

    def closed(self, row: int | None) -> bool:
        """Whether a row needs no further answer."""
        return row in self.answers or row in self.unsure

    def after(self, event: Event) -> Tally:
        """A copy with one more event applied; this one stays unchanged for concurrent readers."""
        new = Tally(dict(self.answers), set(self.unsure), dict(self.skipped), list(self.added))
        new.take(event)
        return new

    def take(self, event: Event) -> None:
        """Apply one event other than an undo, in place."""
        if event.kind == "add":
            self.added.append(str(event.name))
            return
        if event.kind == "remove":
            self.added = [name for name in self.added if name != event.name]
            self.answers = {row: name for row, name in self.answers.items() if name != event.name}
            return
        row = event.row
        assert row is not None  # all other kinds are about a row
        self.answers.pop(row, None)
        self.unsure.discard(row)
        self.skipped.pop(row, None)
        if event.kind == "answer":
            self.answers[row] = str(event.name)
        elif event.kind == "unsure":
            self.unsure.add(row)
        else:
            self.skipped[row] = None


class Refused(ValueError):
    """A request of a page that cannot be granted; the message is shown to the person."""


class Store:
    """The file of one session; thread-safe, and every method is one transaction.

    While a thread holds `lock`, `tally` changes only through that thread's own calls.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection, self.lock = path, connection, threading.RLock()
        self.tally = self._next = self._sum()

    # ---- facts of the session -------------------------------------------------------------------------
    def fact(self, name: str) -> Any:
        """The value stored by `keep`, or None."""
        with self.lock, _sentences(self.path):
            record = self._connection.execute("SELECT * FROM facts WHERE name = ?", (name,)).fetchone()
        return None if record is None else json.loads(_whole(self.path, record)[1])

    def keep(self, name: str, value: Any) -> None:
        """Store a fact about the session, a JSON value."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", _sealed(name, json.dumps(value)))

    # ---- questions ------------------------------------------------------------------------------------
    def reserve(self, tab: str, candidates: Iterable[int]) -> int | None:
        """Reserve a row for a tab: the one it has already, if that is still open, else the first free candidate.

        No two tabs have the same row, unless one was silent for `SILENT` seconds.
        """
        now = time.time()
        with self._transaction() as run:
            # abs(): if the clock is set back, earlier reservations would otherwise expire much too late
            run("DELETE FROM reserved WHERE abs(at - ?) > ? AND tab <> ?", (now, SILENT, tab))
            taken = dict(run("SELECT row, tab FROM reserved").fetchall())
            row = next((row for row, owner in taken.items() if owner == tab and not self.tally.closed(row)), None)
            if row is None:
                free = (row for row in candidates if row not in taken and not self.tally.closed(row))
                row = next(free, None)
            run("DELETE FROM reserved WHERE tab = ?", (tab,))
            if row is not None:
                run("INSERT INTO reserved VALUES (?, ?, ?)", (row, tab, now))
        return row

    def renew(self, tab: str) -> None:
        """Renew the reservation of a tab that is still open."""
        with self._transaction() as run:
            run("UPDATE reserved SET at = ? WHERE tab = ?", (time.time(), tab))

    # ---- events ---------------------------------------------------------------------------------------
    def do(
        self,
        key: str,
        tab: str,
        kind: str,
        row: int | None = None,
        name: str | None = None,
        *,
        again: bool = False,
        asked: bool = True,
    ) -> Event:
        """Record an action of a person, once per key.

        A row is given a class ("answer"), put off ("skip") or declared undecidable ("unsure"). A class is added
        ("add"), or removed together with every answer that names it ("remove"). "undo" reverts the last action of
        this tab on a row, and reserves that row for the tab again.

        Args:
            key, tab: identifiers chosen by the page, for the action and for itself.
            kind: one of the above.
            row, name: the row and the class that the action is about.
            again: replace an existing answer, which is refused otherwise.
            asked: whether the tab was asked about the row; if not, as for imports, reservations are ignored.
        """
        with self._transaction() as run:
            known = run("SELECT * FROM events WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return Event(*known[:-1])
            target = None
            if kind == "undo":
                own = [event for event in self._standing() if event.tab == tab and event.kind in ABOUT_ROWS]
                if not own:
                    raise Refused("There is nothing to undo on this page.")
                row, name, target = own[-1].row, own[-1].name, own[-1].id
            elif kind in ABOUT_ROWS:
                recent = (row, time.time(), SILENT)
                owner = run("SELECT tab FROM reserved WHERE row = ? AND abs(at - ?) <= ?", recent).fetchone()
                if not again and self.tally.closed(row):
                    raise Refused("Someone else answered this row meanwhile: their answer stays.")
                if asked and owner is not None and owner[0] != tab:
                    raise Refused("Someone else is being asked about this row.")
            elif (name in self.tally.added) == (kind == "add"):
                raise Refused(f"{name!r} {'is a class already' if kind == 'add' else 'was not added here'}.")
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            latest, before = run("SELECT id, seal FROM events ORDER BY id DESC LIMIT 1").fetchone() or (0, "")
            event = Event(latest + 1, key, at, tab, kind, row, name, target)
            run("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _sealed(*event, before=before))
            run("DELETE FROM reserved WHERE row = ?", (row,))
            if kind == "undo":
                run("DELETE FROM reserved WHERE tab = ?", (tab,))
                run("INSERT INTO reserved VALUES (?, ?, ?)", (row, tab, time.time()))
            self._next = self._sum() if kind == "undo" else self.tally.after(event)
        return event

    def events(self) -> list[Event]:
        """All events in order, with their checksums verified."""
        with self.lock, _sentences(self.path):
            records = self._connection.execute("SELECT * FROM events ORDER BY id").fetchall()
        seals = ["", *(record[-1] for record in records)]
        return [Event(*_whole(self.path, record, before)) for record, before in zip(records, seals, strict=False)]

    # ---- how it went ----------------------------------------------------------------------------------
    def note_progress(self, labels: int, variance: float, log_loss: float | None) -> None:
        """Record the quality of the model with this number of labels."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)", _sealed(labels, variance, log_loss))

    def progress(self) -> list[tuple[int, float, float | None]]:
        """Number of labels, mean label variance, and leave-one-out log-loss (None if unknown), in order."""
        with self.lock, _sentences(self.path):
            records = self._connection.execute("SELECT * FROM progress ORDER BY labels").fetchall()
        return [_whole(self.path, record) for record in records]

    def close(self) -> None:
        """Close the file, so that others can open it."""
        with self.lock:
            self._connection.close()

    # ---- within ---------------------------------------------------------------------------------------
    def _standing(self) -> list[Event]:
        """All events except undos and what they reverted."""
        events = self.events()
        undone = {event.target for event in events}
        return [event for event in events if event.kind != "undo" and event.id not in undone]

    def _sum(self) -> Tally:
        """Rebuild the current state from all events."""
        tally = Tally()
        for event in self._standing():
            tally.take(event)
        return tally

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """One transaction; a tally set as `_next` becomes current once the transaction is on disk."""
        with self.lock, _sentences(self.path):
            self._next = self.tally
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # on a full disk SQLite has rolled back itself
                    self._connection.execute("ROLLBACK")
                raise
            self.tally = self._next


def open_store(path: Path) -> Store:
    """Open the store in a file, created if needed; fails while another process has it open."""
    with _sentences(path):
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # private: it holds the page's key
        elif not os.access(path, os.W_OK):
            raise ValueError(f"{path} cannot be written: answers would be lost.")
        connection = sqlite3.connect(path, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # released by the system when the process ends
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with connection:
                connection.execute("BEGIN EXCLUSIVE")
                tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if not tables:  # new, or killed before anything was written
                    for statement in _SCHEMA.split(";\n"):
                        connection.execute(statement)
                    connection.execute("INSERT INTO facts VALUES (?, ?, ?)", _sealed("format", json.dumps(FORMAT)))
            kind = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
            if kind is None or json.loads(kind[0]) != FORMAT:
                raise ValueError(
                    f"{path} holds something other than answers of this version: choose another --out."
                )
            return Store(path, connection)
        except BaseException:
            connection.close()
            raise


def _sealed(*values: Any, before: str = "") -> tuple[Any, ...]:
    """A record followed by its checksum, which also covers the checksum `before`."""
    return *values, hashlib.sha256(json.dumps([before, *values]).encode()).hexdigest()[:16]


def _whole(path: Path, row: tuple[Any, ...], before: str = "") -> Any:
    """A record without its checksum, after verifying it."""
    if row != _sealed(*row[:-1], before=before):
        raise ValueError(f"{path} was changed or damaged after it was written: a checksum differs.")
    return row[:-1]


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Context that turns errors of SQLite into errors with a readable message."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise ValueError(
                f"{path.name} is in use by another graphuq label: go to its page (Write results saves its labels, too), "
                "or end it first."
            ) from error
        if "no such table" in str(error):
            raise ValueError(f"{path} holds no answers of graphuq: choose another --out.") from error
        if "no such column" not in str(error) and "decode" not in str(error):
            raise OSError(f"{path} could not be written or read: {error}.") from error
        raise ValueError(f"{path} is damaged, or not a file of answers of this version.") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged, or not a file of answers.") from error
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is damaged, or not a file of answers: {error}.") from error
