"""Long work in parts in; its accumulated result, with checkpoints on disk from which the next run resumes, out.

Examples are sums over blocks of rows, nearest neighbors found cell by cell, or eigenvectors after each iteration.
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
KEEP_AFTER = 30.0  # seconds between checkpoints
QUICK = 1.0  # seconds: work that took less is not checkpointed

# Name of a checkpoint, complete or partially written; the first group is the mark of the features it is for.
_KEPT = re.compile(r"\.?([0-9a-f]{16})-[0-9a-f]{64}\.npz(\.[0-9a-f]{8}\.part)?")

_where: ContextVar[tuple[Path, str] | None] = ContextVar("where", default=None)


@contextmanager
def kept_sums(folder: Path, of: str) -> Iterator[None]:
    """Context in which long work is checkpointed in a folder, removed on success; `of` identifies the features."""
    mark = hashlib.sha256(of.encode()).hexdigest()[:16]
    forget(folder, but=mark)  # leftovers of a killed run on other features
    before = _where.set((folder, mark))
    try:
        yield
    finally:
        _where.reset(before)
    forget(folder)


def forget(folder: Path, *, but: str | None = None) -> None:
    """Remove all checkpoints except those of one mark, and the folder unless something else is in it."""
    for path in folder.glob("*"):
        if (match := _KEPT.fullmatch(path.name)) and match[1] != but:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def going_on(
    parts: Callable[[int, Sums | None], Iterable[Any]], add: Callable[[Sums | None, Any], Sums], *inputs: Any
) -> Sums:
    """Accumulate all parts in order; inside `kept_sums`, resume where an earlier run was stopped.

    Args:
        parts: maps the number of parts done, and the result so far, to an iterable of the remaining parts.
        add: combines the result so far (None at first) with the next part.
        inputs: everything that the result depends on, which identifies the work; see `place`.
    """
    path = place(*inputs)
    n_done, result = read(path)
    n_saved, began = n_done, time.monotonic()
    saved = began
    for part in parts(n_done, result):
        n_done, result = n_done + 1, add(result, part)
        if path is not None and time.monotonic() - saved > KEEP_AFTER:
            write(path, n_done, result)
            n_saved, saved = n_done, time.monotonic()
    assert result is not None  # there is at least one part
    if path is not None and n_done > n_saved and (path.exists() or time.monotonic() - began > QUICK):
        write(path, n_done, result)
    return result


def once(work: Callable[[], Sums], *inputs: Any) -> Sums:
    """Result of work in a single part; inside `kept_sums`, not recomputed by a run that resumes."""
    return going_on(lambda n_done, _: (work() for _ in range(n_done, 1)), lambda _, result: result, *inputs)


def place(*inputs: Any) -> Path | None:
    """Checkpoint file of the work with these inputs, or None outside `kept_sums`.

    The name is a digest of the inputs: a run whose inputs differ, even by rounding, starts the work anew.
    """
    if (where := _where.get()) is None:
        return None
    digest = hashlib.sha256()
    # the pickle is only hashed, never loaded; large arrays are not copied
    pickle.Pickler(SimpleNamespace(write=digest.update), protocol=5).dump(inputs)
    return where[0] / f"{where[1]}-{digest.hexdigest()}.npz"


def write(path: Path, n_done: int, result: Sums) -> None:
    """Write a checkpoint: the result accumulated over the first `n_done` parts."""
    facts = {"parts": n_done, "arrays": [not isinstance(item, list) and np.ndim(item) > 0 for item in result]}
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.write(path, FORMAT, facts, {str(k): np.asarray(item) for k, item in enumerate(result)})


def read(path: Path | None) -> tuple[int, Sums | None]:
    """Number of parts in a checkpoint, and its result; (0, None) if there is no intact one."""
    if path is None:
        return 0, None
    try:
        facts, arrays = archive.read(path, FORMAT, "a sum")
    except (ValueError, FileNotFoundError):
        return 0, None
    items = (arrays[str(k)] if is_array else arrays[str(k)].tolist() for k, is_array in enumerate(facts["arrays"]))
    return facts["parts"], tuple(items)
