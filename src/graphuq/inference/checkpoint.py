"""A file that a killed run goes on from: blocks of arrays in, appended whole or not at all.

The file is a line of JSON that says which problem it belongs to, followed by records, each with its
length and checksum before it. A record cut short by a kill is recognized and overwritten.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from graphuq.files import whole_file

MAGIC = b"graphuq checkpoint 1\n"
BLOCK_SIZE = "draws a block"
HEAD = struct.Struct("<QI")  # length and CRC-32 of the record that follows

Record = dict[str, NDArray[Any]]


class CheckpointError(ValueError):
    """The file is no checkpoint, or one of another problem."""


class Log:
    """Blocks of a run in order, kept in memory and, given a path, in a file that survives a kill.

    Args:
        path: the file, or None to keep nothing. One that exists is gone on from.
        problem: what the run is of; a file of another problem is refused and every difference named.
        block_size: draws of a block; a file's own size is kept to, so that it goes on as it began.
    """

    def __init__(self, path: str | Path | None, problem: dict[str, Any], *, block_size: int) -> None:
        self.path = None if path is None else Path(path)
        self.block_size = block_size
        self.records: list[Record] = []
        if self.path is None:
            return
        if self.path.exists():
            self.block_size, self.records = _resume(self.path, problem)
        else:
            _start(self.path, problem | {BLOCK_SIZE: block_size})

    @property
    def n_blocks(self) -> int:
        """Blocks so far, of the warm-up too."""
        return len(self.records)

    @property
    def n_draws(self) -> int:
        """Draws of each chain so far."""
        return sum(record["z"].shape[1] for record in self.records if "z" in record)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """An array of every draw so far, shape (chains, draws, ...)."""
        return np.concatenate([record[name] for record in self.records if name in record], axis=1)

    def append(self, state: Any, draws: dict[str, Any] | None) -> None:
        """Add a block: the states of the chains after it, and what it drew unless it was warm-up."""
        record = {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        record |= {name: np.asarray(array) for name, array in (draws or {}).items()}
        if self.path is not None:
            _append(self.path, record)
        self.records.append(record)

    def state_like(self, state: Any) -> Any:
        """The states after the last block, or `state` before the first."""
        if not self.records:
            return state
        stored = [self.records[-1][f"state{i}"] for i in range(len(jax.tree.leaves(state)))]
        return jax.tree.unflatten(jax.tree.structure(state), [jax.numpy.asarray(leaf) for leaf in stored])

    def mean_history(self, thin: int) -> list[tuple[int, NDArray[Any]]]:
        """After each block of draws: steps so far, and the mean of z over them and the chains."""
        history, n_draws, total = [], 0, 0.0
        for z in (record["z"] for record in self.records if "z" in record):
            n_draws += z.shape[1]
            total = total + z.mean(axis=0, dtype=float).sum(axis=0)
            history.append((n_draws * thin, np.asarray(total / n_draws)))
        return history


def _start(path: Path, head: dict[str, Any]) -> None:
    """Make a new file."""
    with whole_file(path) as part, part.open("wb") as file:
        file.write(MAGIC + json.dumps(head, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _append(path: Path, record: Record) -> None:
    """Add one record at the end."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **record)
    body = buffer.getvalue()
    with path.open("ab") as file:
        file.write(HEAD.pack(len(body), zlib.crc32(body)) + body)


def _resume(path: Path, problem: dict[str, Any]) -> tuple[int, list[Record]]:
    """The block size and the whole records of a file; whatever follows the last one is cut off."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{path} is not a checkpoint of graphuq: give another file name.")
        try:
            stored = json.loads(file.readline())
            block_size = int(stored.pop(BLOCK_SIZE))
        except (ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} has a damaged first line: delete it to start anew.") from error
        differences = [
            f"{name} was {stored.get(name)!r} and is now {problem.get(name)!r}"
            for name in sorted(stored.keys() | problem.keys())
            if stored.get(name) != problem.get(name)
        ]
        if differences:
            raise CheckpointError(
                f"{path} belongs to another problem: {'; '.join(differences)}. Give another file name."
            )
        end, records = file.tell(), []
        while (record := _read(file)) is not None:
            end = file.tell()
            records.append(record)
    os.truncate(path, end)
    return block_size, records


def _read(file: io.BufferedReader) -> Record | None:
    """The next record, or None where the file ends or the record is not whole."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, checksum = HEAD.unpack(head)
    if length > os.fstat(file.fileno()).st_size - file.tell():
        return None
    body = file.read(length)
    if zlib.crc32(body) != checksum:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return dict(arrays)
