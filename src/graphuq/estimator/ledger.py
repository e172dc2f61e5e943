"""A description of the results that a folder should hold in; which blocks of them are written already out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import numpy as np

from graphuq.files import lock

FORM = "graphuq answers 5"
LEDGER = "_graphuq.jsonl"  # Parquet readers skip names that begin with "_"
# Tolerance of the identifying fields, in standard deviations: a fit repeated on another machine differs by
# rounding, measured 3e-4; one with other hyper-parameters or draws differs by more than this.
SAME = 3e-3


@dataclass(eq=False)
class Ledger:
    """A log file beside the results: a line that describes them (the question), then one for each block written.

    Attributes:
        folder: folder of the results.
        question: which fit, and which rows, the results are of.
        place: maps the number of a block to its file.
        marks: maps numbers of blocks to checksums that identify their rows.
        begun: whether the question is in the file; known once it is open.
    """

    folder: Path
    question: dict[str, Any]
    place: Callable[[int], Path]
    marks: Callable[[list[int]], Iterable[int]]
    begun: bool = False
    _file: IO[bytes] | None = field(default=None, repr=False)

    def mismatch(self) -> str | None:
        """Whose results the folder holds, if not those of the question."""
        recorded, listed = self._read()
        if recorded is not None and not _same(recorded, self.question):
            return "another fit, or of other rows"
        marks = list(self.marks(list(listed)))
        return None if marks == [mark for mark, _ in listed.values()] else "other rows"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Lock the file, creating it if needed, and open it for appending; raise an error on a mismatch."""
        with lock(self.folder / LEDGER) as self._file:
            if whose := self.mismatch():
                raise ValueError(
                    f"{self.folder} holds the answers of {whose}: choose another folder, or replace it: force=True."
                )
            self._file.seek(0)
            self._file.truncate(self._file.read().rfind(b"\n") + 1)  # drop a line that was cut off
            self.begun = self._read()[0] is not None
            yield

    def done(self) -> set[int]:
        """The blocks whose files are unchanged since they were written."""
        return {number for number, (_, seal) in self._read()[1].items() if _seal(self.place(number)) == seal}

    def append(self, number: int, mark: int) -> None:
        """Record that a block was written."""
        assert self._file is not None
        if not self.begun:
            self._file.write(json.dumps(self.question).encode() + b"\n")
            self.begun = True
        self._file.write(_line(number, mark, _seal(self.place(number))))
        self._file.flush()

    def _read(self) -> tuple[Any, dict[int, tuple[int, int]]]:
        """The recorded question, and checksums of each block's rows and file; ignores an incomplete last line."""
        path = self.folder / LEDGER
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        listed: dict[int, tuple[int, int]] = {}
        try:
            recorded = json.loads(lines[0]) if lines else None
            if not (isinstance(recorded, dict) and recorded.get("form") == FORM):  # e.g. of another version
                return recorded, listed
            for line in lines[1:]:
                number, mark, seal = (
                    int(word, base) for word, base in zip(line.split(), (10, 16, 16), strict=False)
                )
                if line + b"\n" != _line(number, mark, seal):
                    raise ValueError
                listed[number] = mark, seal
            return recorded, listed
        except ValueError:
            raise ValueError(f"{path} is damaged: choose another folder, or remove this one.") from None


def _same(recorded: Any, question: dict[str, Any]) -> bool:
    """Whether recorded results are of the same question, up to rounding of the fields."""
    try:
        difference = np.abs(np.subtract(recorded["fields"], question["fields"])).max()
        return bool(difference < SAME) and recorded | {"fields": 0} == question | {"fields": 0}
    except (KeyError, TypeError, ValueError):  # not a question of this form
        return False


def _line(number: int, mark: int, seal: int) -> bytes:
    """The line of a block, with a checksum: a flipped digit would make another block be skipped."""
    line = f"{number} {mark:08x} {seal:08x}"
    return f"{line} {crc32(line.encode()):08x}\n".encode()


def _seal(path: Path) -> int:
    """Checksum of a file; -1 if it does not exist."""
    return crc32(path.read_bytes()) if path.exists() else -1
