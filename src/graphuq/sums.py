"""The sum of a pass over very many blocks in; the same kept in a folder from time to time, and taken up by the next run, out."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from graphuq import archive

Sums = tuple[Any, ...]

FORMAT = "graphuq sums 1"
KEEP_AFTER = 30.0  # seconds: what takes less is summed again

_where: ContextVar[tuple[Path, str] | None] = ContextVar("where", default=None)


@contextmanager
def kept_sums(folder: Path, of: str) -> Iterator[None]:
    """Long passes inside keep their sums in a folder, which goes when all is done; `of` says which features they are of."""
    before = _where.set((folder, of))
    try:
        yield
    finally:
        _where.reset(before)
    shutil.rmtree(folder, ignore_errors=True)


def place(*asked: Any) -> Path | None:
    """The file of a pass that does this, if sums are kept.

    What it does tells it from others: a run that came to other numbers before, by rounding say, begins it again.
    """
    if (where := _where.get()) is None:
        return None
    told = pickle.dumps((where[1], asked))  # never loaded
    return where[0] / f"{hashlib.sha256(told).hexdigest()}.npz"


def write(path: Path, n_blocks: int, sums: Sums) -> None:
    """Keep the sum of the first blocks."""
    facts = {"blocks": n_blocks, "arrays": [isinstance(each, np.ndarray) for each in sums]}
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.write(path, FORMAT, facts, {str(k): np.asarray(each) for k, each in enumerate(sums)})


def read(path: Path | None) -> tuple[int, Sums | None]:
    """How many blocks are in the sum that was kept, and it; none if there is none, or none that is whole."""
    if path is None or not path.exists():
        return 0, None
    try:
        facts, arrays = archive.read(path, FORMAT, "a sum")
    except ValueError:
        return 0, None
    found = (arrays[str(k)] if kept else arrays[str(k)].tolist() for k, kept in enumerate(facts["arrays"]))
    return facts["blocks"], tuple(found)
