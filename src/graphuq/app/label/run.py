"""A table on disk in; a page to label its rows, stored answers, and the result folder of `fit` out."""

from __future__ import annotations

import secrets
import socket
import time
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphuq._progress import LONG
from graphuq.app import folder
from graphuq.app.fitting import write_results
from graphuq.app.label import adviser, exchange
from graphuq.app.label.look import check_pictures, differences, identity, look_at
from graphuq.app.label.session import Session, checked_name
from graphuq.app.label.store import Refused, Store, open_store
from graphuq.app.options import Showing
from graphuq.app.question import Data, Question, read_data
from graphuq.app.shell import printable, sentence
from graphuq.app.wording import words_of_the_shell
from graphuq.estimator import GraphClassifier
from graphuq.files import whole_folder

Tell = Callable[[str], None]


def answers_file(out: Path) -> Path:
    """File with the answers of a session: beside the result folder, since that is replaced as a whole."""
    return out.absolute().with_name(f"{out.absolute().name}.answers")


@contextmanager
def opened(
    question: Question,
    classifier: GraphClassifier,
    tell: Tell,
    *,
    out: Path,
    showing: Showing,
    classes: Sequence[str] = (),
    at: tuple[str, int | None] | None = None,
    advised: bool = True,
    force: bool = False,
) -> Iterator[Opened]:
    """Start or resume a labeling session for a table, with everything needed to write its results to a folder.

    The answers are stored beside the folder. `classes` are class names, in addition to those in the table; one that was
    removed on the page stays removed.
    If the session is to be served `at` a host and port, the socket is bound before any other work. If it is not
    `advised`, answers can be recorded, and no graph is built.
    """
    began = time.perf_counter()
    classes = [checked_name(name) for name in classes]
    check_pictures(question, showing)
    path = answers_file(out)
    if out.exists() and not path.exists() and not force:
        raise ValueError(f"{out} exists already: choose another folder, or replace it with --force.")
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} to keep the answers in.")
    tell(f"Reading {question.table.name}")
    if at is not None and question.drop and not showing.show:
        tell("Columns of --drop are not shown on the page: --show names those that people should see.")
    file_names = showing.picture_column
    if file_names is not None and not question.columns and file_names not in (question.row_id, *question.drop):
        question = replace(question, drop=[*question.drop, file_names])
    data = read_data(question, any_labels=True)
    for note in data.notes:
        tell(note)
    look = look_at(data, question, showing)
    with ExitStack() as stack:
        store = open_store(path)
        stack.callback(_close, store)
        _recognize(store, data, question)
        listener = None
        if at is not None:
            from graphuq.app.label.server import listen

            listener = stack.enter_context(listen(*at, store.fact("port")))
        with words_of_the_shell(data.rows.names) as notes:
            data.rescale(classifier)
            seen = (
                adviser.seen(classifier, data.X, lambda stage: tell(f"Finding the {stage}")) if advised else None
            )
        # warnings about few labels are pointless while asking for more; set here, since threads share the filters
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        title = printable(f"{question.label} of each row in {question.table.name}")
        given = {row: str(name) for row, name in enumerate(data.y) if name not in ("", "-1")}
        session = Session(seen, data.X, given, look, store, title=title)
        if advised:
            stack.callback(_end, session.adviser, tell)
        begun = {event.key for event in store.events()}
        for name in classes:
            if name not in session.classes() and f"begin {name}" not in begun:  # else it was removed since
                session.do(f"begin {name}", "shell", "add", name=name)
        if n := len(store.tally.answers):
            tell(f"Going on with {n:,} answer{'s' if n != 1 else ''} in {path.name}")
        yield Opened(out, question, data, session, notes, began, listener)


def _end(advising: adviser.Adviser, tell: Tell) -> None:
    """End the thread, and say so if that takes long."""
    if not advising.stop(LONG):
        tell("Waiting for the model, which is still learning (Ctrl-C ends at once)")
        advising.stop()


def _close(store: Store) -> None:
    """Close the file of answers, and remove one without any."""
    empty = not store.events()
    store.close()
    if empty:
        store.path.unlink()


@dataclass(frozen=True)
class Opened:
    """A running session, and what is needed to write its results."""

    out: Path
    question: Question
    data: Data
    session: Session
    notes: list[str]
    began: float
    listener: socket.socket | None

    def write(self) -> dict[str, Any]:
        """Fit to all labels and write the result folder of `fit`; returns its summary."""
        labels = self.session.labels()
        if len(set(labels.values())) < 2:
            raise Refused(
                "There are no results before two classes have a label each: go on, the answers are kept."
            )
        if len(labels) == len(self.data.X):
            raise Refused("Every row has a class, so there is nothing to find out: export the labels instead.")
        with whole_folder(self.out, replace=True, foreign=folder.foreign) as part:
            classifier = adviser.learned(self.session.adviser.seen, labels)
            seconds = time.perf_counter() - self.began
            return write_results(part, self.question, self.data, classifier, notes=self.notes, seconds=seconds)


def serve(running: Opened, host: str, tell: Tell, *, browse: bool = True) -> None:
    """Serve the page until the process is interrupted."""
    import uvicorn

    from graphuq.app.label.server import application, is_loopback

    store, listener = running.session.store, running.listener
    assert listener is not None
    key = store.fact("key") or secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    store.keep("key", key)
    store.keep("port", port)

    def finish() -> dict[str, Any]:
        summary = running.write()
        return {"sentence": f"{summary['labeled']:,} labels, {summary['rows']:,} rows: {running.out}"}

    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{port}/#{key}"
    named: dict[str, Any] = {"label": running.question.label, "row_id": running.question.row_id}
    labels = partial(exchange.text_of, running.session, marks=running.data.table.marks, **named)
    app = application(running.session, key, host, finish, labels)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", server_header=False, ws="none",
        timeout_graceful_shutdown=2, limit_concurrency=100,
    )  # fmt: skip
    if not is_loopback(host):
        tell(
            "Whoever can reach this machine and has the address can see the table and answer; nothing is encrypted."
        )
    tell(f"Label here: {address}")
    if browse:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):  # Ctrl-C is the regular way to stop
        uvicorn.Server(config).run(sockets=[listener])


def leave(running: Opened, tell: Tell) -> None:
    """Write the results at the end, if possible; the answers are already on disk."""
    running.session.adviser.retire()  # advice that nobody will see would only slow down the writing
    n = len(running.session.store.tally.answers)
    many = f"{n:,} answers" if n != 1 else "1 answer"
    if not n:
        tell("No answers, so nothing is written: graphuq fit makes the results of the table as it is.")
        return
    try:
        tell("Writing the results (the answers are safe already; Ctrl-C leaves without)")
        running.write()
        tell(f"{many}, and the results: {running.out}")
    except Refused as error:
        tell(sentence(error))
    except KeyboardInterrupt:
        tell(f"{many} kept: the same command goes on from there.")


def _recognize(store: Store, data: Data, question: Question) -> None:
    """Refuse a different or changed table, since answers refer to its rows; similarity settings may change."""
    now, before = identity(data.table, {"--label": question.label}), store.fact("table")
    if before is None:
        store.keep("table", now)
        return
    changed = differences(before, now)
    if changed:
        raise ValueError(
            f"{question.table.name} is not the table that {store.path.name} has answers for: {'; '.join(changed)}. "
            "Bring it back as it was, or choose another --out."
        )
