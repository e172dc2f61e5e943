"""Errors and signals in a command in; one line on standard error and an exit code out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from threading import Timer
from typing import Any

import typer

from graphuq._needed import MissingLibrary
from graphuq.memory import check_beginning

JOINERS = "\u200c\u200d"  # needed to spell Persian and Hindi words and some emoji; harmless
_NO_PROCESSOR = "Unable to initialize backend"  # how JAX says that JAX_PLATFORMS names a device that is not there


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn an error of the library, or that one is missing, into one line on standard error and exit code 2."""
    try:
        check_beginning()
        yield
    except (ValueError, OSError, MemoryError, MissingLibrary, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith(_NO_PROCESSOR):
            raise
        typer.echo("graphuq: " + sentence(error), err=True)
        raise typer.Exit(2) from None


def sentence(error: Exception, where: str = "the system refused") -> str:
    """The message of an error in one line; `where` replaces a missing file name."""
    if isinstance(error, FileExistsError):
        return printable(f"{error.filename} is a file, where a folder is needed.")
    if isinstance(error, OSError) and error.strerror:  # otherwise the message is our own
        return printable(f"{error.filename or where}: {error.strerror}.")
    return printable(" ".join(str(error).split()) or "there is not enough memory.")  # a bare MemoryError


def printable(text: str) -> str:
    """Replace control characters, which could manipulate a terminal, by "?"."""
    return "".join(letter if letter.isprintable() or letter in JOINERS else "?" for letter in text)


def tell(line: str, silent: bool = False) -> None:
    """Print a line to standard error, unless silent."""
    if not silent:
        typer.echo(printable(line), err=True)


def exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that cleanup code runs; the exit code is 128 + its number.

    Signals that are ignored, as under nohup, stay ignored.
    """

    def leave(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the cleanup
        sys.exit(128 + number)

    def once_more(unraisable: Any) -> None:
        """Send a signal again if its exception was lost in a callback of the garbage collector, such as JAX's."""
        number: int = signal.SIGINT
        if isinstance(unraisable.exc_value, SystemExit):
            number = int(unraisable.exc_value.code or 0) - 128  # the exit code of `leave`
            signal.signal(number, leave)
        elif not isinstance(unraisable.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        Timer(0.01, os.kill, (os.getpid(), number)).start()  # once the callback has ended

    sys.unraisablehook = once_more
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


@contextmanager
def whole_output() -> Iterator[None]:
    """Turn failure to write standard output into one line and exit code 2; exit quietly on a closed pipe.

    Piped output is always UTF-8, and characters that cannot be encoded are escaped.
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else flushing at exit fails again
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        with suppress(OSError):
            typer.echo("graphuq: " + sentence(error, "standard output could not be written"), err=True)
        sys.exit(2)
