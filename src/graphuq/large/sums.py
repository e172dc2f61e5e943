"""Long work in parts in; what was made of them, kept in a folder from time to time and taken up by the next run, out.

That is a sum over blocks of rows, the nearest neighbors in some cells, or eigenvectors after some iterations.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphuq import archive

Sums = tuple[Any, ...]

FORMAT = "graphuq sums 2"
KEEP_AFTER = 30.0  # seconds between two times that something is kept
QUICK = 1.0  # seconds: what took less is made again

# A file of ours, or one that was not finished; first comes the mark of what it is of.
_KEPT = re.compile(r"\.?([0-9a-f]{16})-[0-9a-f]{64}\.npz(\.[0-9a-f]{8}\.part)?")

_where: ContextVar[tuple[Path, str] | None] = ContextVar("where", default=None)


@contextmanager
def kept_sums(folder: Path, of: str) -> Iterator[None]:
    """Long work inside keeps what it made in a folder, which goes when all is done; `of` says which features it is of."""
    mark = hashlib.sha256(of.encode()).hexdigest()[:16]
    forget(folder, but=mark)  # of a run that was killed, and asked something else
    before = _where.set((folder, mark))
    try:
        yield
    finally:
        _where.reset(before)
    forget(folder)


def forget(folder: Path, *, but: str | None = None) -> None:
    """Remove what was kept, but of one mark; and the folder, unless it holds something else, of a user's own say."""
    for left in folder.glob("*"):
        if (found := _KEPT.fullmatch(left.name)) and found[1] != but:
            left.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def going_on(
    parts: Callable[[int, Sums | None], Iterable[Any]], add: Callable[[Sums | None, Any], Sums], *asked: Any
) -> Sums:
    """What is made of all parts, one after the other; inside `kept_sums` from where an earlier run was stopped.

    Args:
        parts: from how many are done, and what was made of them, to the others.
        add: from what was made so far, and the next part, to what is made of both.
        asked: what tells this work from other.
    """
    path = place(*asked)
    n_done, made = read(path)
    n_kept, began = n_done, time.monotonic()
    kept = began
    for part in parts(n_done, made):
        n_done, made = n_done + 1, add(made, part)
        if path is not None and time.monotonic() - kept > KEEP_AFTER:
            write(path, n_done, made)
            n_kept, kept = n_done, time.monotonic()
    assert made is not None  # there are parts
    if path is not None and n_done > n_kept and (path.exists() or time.monotonic() - began > QUICK):
        write(path, n_done, made)
    return made


def once(work: Callable[[], Sums], *asked: Any) -> Sums:
    """What work in one part makes; inside `kept_sums` it is not made again."""
    return going_on(lambda n_done, _: (work() for _ in range(n_done, 1)), lambda _, made: made, *asked)


def place(*asked: Any) -> Path | None:
    """The file of work that does this, if what it makes is kept.

    What it does tells it from others: a run that came to other numbers before, by rounding say, begins it again.
    """
    if (where := _where.get()) is None:
        return None
    digest = hashlib.sha256()
    # never loaded; large arrays are not copied
    pickle.Pickler(SimpleNamespace(write=digest.update), protocol=5).dump(asked)
    return where[0] / f"{where[1]}-{digest.hexdigest()}.npz"


def write(path: Path, n_done: int, made: Sums) -> None:
    """Keep what was made of the first parts."""
    facts = {"parts": n_done, "arrays": [not isinstance(each, list) and np.ndim(each) > 0 for each in made]}
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.write(path, FORMAT, facts, {str(k): np.asarray(each) for k, each in enumerate(made)})


def read(path: Path | None) -> tuple[int, Sums | None]:
    """How many parts are in what was kept, and it; none if there is none, or none that is whole."""
    if path is None:
        return 0, None
    try:
        facts, arrays = archive.read(path, FORMAT, "a sum")
    except (ValueError, FileNotFoundError):
        return 0, None
    found = (arrays[str(k)] if kept else arrays[str(k)].tolist() for k, kept in enumerate(facts["arrays"]))
    return facts["parts"], tuple(found)
