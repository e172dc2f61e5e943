"""What goes wrong at a shell in; one line on standard error and an exit code out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

import typer

from graphuq.memory import check_beginning

JOINERS = "\u200c\u200d"  # part of how Persian and Hindi words and some emoji are spelled; they steer nothing


@contextmanager
def one_sentence() -> Iterator[None]:
    """What the library refuses becomes one line on standard error and exit code 2."""
    try:
        check_beginning()
        yield
    except (ValueError, OSError, MemoryError) as error:
        typer.echo("graphuq: " + sentence(error), err=True)
        raise typer.Exit(2) from None


def sentence(error: Exception, where: str = "the system refused") -> str:
    """What an error says, in one line; `where` stands in for a file that it does not name."""
    if isinstance(error, FileExistsError):
        return printable(f"{error.filename} is a file, where a folder is needed.")
    if isinstance(error, OSError) and error.strerror:  # else the words are ours
        return printable(f"{error.filename or where}: {error.strerror}.")
    return printable(" ".join(str(error).split()) or "there is not enough memory.")  # all others have words


def printable(text: str) -> str:
    """Text of a table as a terminal may show it: control characters, which could steer it, become "?"."""
    return "".join(letter if letter.isprintable() or letter in JOINERS else "?" for letter in text)


def tell(line: str, silent: bool = False) -> None:
    """A line on standard error, unless none is wanted."""
    if not silent:
        typer.echo(printable(line), err=True)


def exit_on_signals() -> None:
    """Let a request to end unwind the stack, so that nothing half-written stays; the exit code is 128 + its number.

    A signal that is ignored, as under nohup, stays ignored.
    """

    def leave(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would stop the cleaning up
        sys.exit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


@contextmanager
def whole_output() -> Iterator[None]:
    """Standard output that cannot be written becomes one line and exit code 2 too; a closed pipe ends quietly.

    What is piped is UTF-8, whatever the terminal would take, and no name of a user's is one that cannot be printed.
    """
    if sys.stdout is None or sys.stderr is None:  # a shell may have closed them
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        with suppress(OSError):
            typer.echo("graphuq: " + sentence(error, "standard output could not be written"), err=True)
        sys.exit(2)
