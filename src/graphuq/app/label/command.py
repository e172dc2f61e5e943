"""Command-line options of `graphuq label` in; a page on which people label rows out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from graphuq.app.options import Force, Quiet, Reading, Showing, Similarity, grouped
from graphuq.app.shell import one_sentence, tell


@grouped
def label(
    table: Annotated[Path, typer.Argument(help="The table, as for fit; it need not have any labels.")],
    label: Annotated[
        str, typer.Option(help="Column with the class of some rows, if any; or a name for a new one.")
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the results, as fit makes it; answers are kept beside it.")
    ],
    *,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="A class to choose from; repeat. More can be added on the page."),
    ] = None,
    showing: Showing,
    take: Annotated[
        Path | None, typer.Option("--import", help="Take answers from a CSV or Label Studio JSON file, and end.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write answers to a CSV or Label Studio JSON file, and end.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default nobody else can reach it.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; by default any that is free.")] = None,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    reading: Reading,
    similarity: Similarity,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Ask people about the rows that teach the model most, on a page in the browser.

    The same command continues where it stopped, whatever happened. Ctrl-C ends it and writes the results.
    """
    say = partial(tell, silent=quiet)
    with one_sentence():
        from graphuq._needed import needed
        from graphuq.app.label import exchange, run

        if export is not None:
            exchange.check_export(export, force, table)
        if take is not None:
            exchange.check_source(take)
        question, classifier = reading.question(table, label), similarity.classifier()
        served = take is None and export is None
        if served:
            for name in ("starlette", "uvicorn"):  # fail early
                needed(name, f"The page needs {name}, which is not installed", "label")
        where: dict[str, Any] = {"out": out, "force": force, "at": (host, port) if served else None}
        where["advised"] = served or export is not None
        with run.opened(question, classifier, say, showing=showing, classes=classes or (), **where) as running:
            if take is not None:
                say(exchange.take(running.session, take, label=label, row_id=reading.row_id))
            if export is not None:
                row_id, marks = reading.row_id, running.data.table.marks
                say(exchange.export(running.session, export, label=label, row_id=row_id, force=force, marks=marks))
            if served:
                try:
                    run.serve(running, host, say, browse=browse)
                finally:
                    run.leave(running, say)
