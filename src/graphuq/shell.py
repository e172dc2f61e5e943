"""What goes wrong at a shell in; one line on standard error and an exit code out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer


@contextmanager
def one_sentence() -> Iterator[None]:
    """What the library refuses becomes one line on standard error and exit code 2."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        typer.echo("graphuq: " + sentence(error), err=True)
        raise typer.Exit(2) from None


def sentence(error: Exception) -> str:
    """What an error says, in one line."""
    if isinstance(error, FileExistsError):
        return f"{error.filename} is a file, where a folder is needed."
    if isinstance(error, OSError) and error.strerror:  # else the words are ours
        return f"{error.filename or 'standard output could not be written'}: {error.strerror}."
    return " ".join(str(error).split())


@contextmanager
def whole_output() -> Iterator[None]:
    """Standard output that cannot be written becomes one line and exit code 2 too; a closed pipe ends quietly."""
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
            typer.echo("graphuq: " + sentence(error), err=True)
        sys.exit(2)
