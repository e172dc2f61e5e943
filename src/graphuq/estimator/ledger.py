"""What is asked of a folder of answers in; which blocks of it are there already out, and a line for each new one."""

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
LEDGER = "_graphuq.jsonl"  # readers of Parquet pass over "_"
# By how many deviations fields may differ: a fit repeated on another machine differs by rounding, measured 3e-4, one of
# other hyper-parameters or draws by more than this.
SAME = 3e-3


@dataclass(eq=False)
class Ledger:
    """A file beside the answers: a line of what was asked, then one for each block that was written.

    Attributes:
        folder: where the answers are.
        question: what is asked.
        place: the number of a block to the file that holds it.
        marks: the numbers of blocks to what tells their rows from others.
        begun: whether the file says what was asked; known once it is open.
    """

    folder: Path
    question: dict[str, Any]
    place: Callable[[int], Path]
    marks: Callable[[list[int]], Iterable[int]]
    begun: bool = False
    _file: IO[bytes] | None = field(default=None, repr=False)

    def mismatch(self) -> str | None:
        """Whose answers the folder holds, if not those of the question."""
        known, listed = self._read()
        if known is not None and not _same(known, self.question):
            return "another fit, or of other rows"
        found = list(self.marks(list(listed)))
        return None if found == [mark for mark, _ in listed.values()] else "other rows"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Hold the file, made if need be, and add to it; a mismatch is refused."""
        with lock(self.folder / LEDGER) as self._file:
            if whose := self.mismatch():
                raise ValueError(
                    f"{self.folder} holds the answers of {whose}: choose another folder, or replace it by force."
                )
            self._file.seek(0)
            self._file.truncate(
                self._file.read().rfind(b"\n") + 1
            )  # else a line would go on where one was cut off
            self.begun = self._read()[0] is not None
            yield

    def done(self) -> set[int]:
        """The blocks that are there as they were written."""
        return {number for number, (_, seal) in self._read()[1].items() if _seal(self.place(number)) == seal}

    def append(self, number: int, mark: int) -> None:
        """Note that a block is there."""
        assert self._file is not None
        if not self.begun:
            self._file.write(json.dumps(self.question).encode() + b"\n")
            self.begun = True
        self._file.write(_line(number, mark, _seal(self.place(number))))
        self._file.flush()

    def _read(self) -> tuple[Any, dict[int, tuple[int, int]]]:
        """What was asked, and of each block what tells its rows and its bytes; a line cut off does not count."""
        path = self.folder / LEDGER
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        listed: dict[int, tuple[int, int]] = {}
        try:
            known = json.loads(lines[0]) if lines else None
            if not (isinstance(known, dict) and known.get("form") == FORM):  # of another version, say
                return known, listed
            for line in lines[1:]:
                number, mark, seal = (
                    int(word, base) for word, base in zip(line.split(), (10, 16, 16), strict=False)
                )
                if line + b"\n" != _line(number, mark, seal):
                    raise ValueError
                listed[number] = mark, seal
            return known, listed
        except ValueError:
            raise ValueError(f"{path} is damaged: choose another folder, or remove this one.") from None


def _same(known: Any, question: dict[str, Any]) -> bool:
    """Whether answers are those of the fit that is asked, or of one that differs by rounding."""
    try:
        apart = np.abs(np.subtract(known["fields"], question["fields"])).max()
        return bool(apart < SAME) and known | {"fields": 0} == question | {"fields": 0}
    except (KeyError, TypeError, ValueError):  # no question of this form
        return False


def _line(number: int, mark: int, seal: int) -> bytes:
    """What the ledger holds of a block, with a checksum: a flipped digit would leave out another block."""
    told = f"{number} {mark:08x} {seal:08x}"
    return f"{told} {crc32(told.encode()):08x}\n".encode()


def _seal(path: Path) -> int:
    """What tells the bytes of a file from others; -1 where there is no file."""
    return crc32(path.read_bytes()) if path.exists() else -1
