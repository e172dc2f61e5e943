"""Checkpoints of a run: blocks of arrays in; a file from which a killed run resumes out.

The file starts with a line of JSON that identifies the problem, with a checksum, followed by one record per block,
each preceded by its number, length and checksum. A record truncated by a kill is detected and overwritten. The
process that writes a file holds a lock on it.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from pickle import PicklingError
from typing import IO, Any

import jax
import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect_path
from graphuq.files import InUseError, lock

MAGIC = b"graphuq checkpoint 7\n"
BLOCK_SIZE = "draws a block"
HASH = "hash "  # begins a fingerprint, which means nothing to a person
HEAD = struct.Struct("<QQI")  # number, length and checksum of the record that follows, see `_checksum`

Record = dict[str, NDArray[Any]]


class CheckpointError(ValueError):
    """The file is not a checkpoint, or belongs to another problem."""


class Log:
    """The blocks of a run in order, kept in memory and, given a path, in a file that survives a kill.

    Args:
        path: the file, or None to keep the blocks in memory only. A run resumes from an existing file.
        problem: identifies the run; a file of another problem is refused with a list of the differences.
        block_size: draws per block; an existing file keeps its own, so that the run continues unchanged.
    """

    def __init__(self, path: str | Path | None, problem: dict[str, Any], *, block_size: int) -> None:
        self.block_size = block_size
        self.records: list[Record] = []
        self._file = None if path is None else _open(expect_path(path, "checkpoint"))
        if self._file is None:
            return
        try:
            if (stored := _resume(self._file, problem)) is not None:
                self.block_size, self.records = stored
            else:
                _start(self._file, problem | {BLOCK_SIZE: block_size})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file and release its lock."""
        if self._file is not None:
            with suppress(OSError):  # a failed write has already been reported
                self._file.close()

    @property
    def n_blocks(self) -> int:
        """Blocks so far, including the warm-up."""
        return len(self.records)

    @property
    def n_draws(self) -> int:
        """Draws of each chain so far."""
        return sum(record["z"].shape[1] for record in self.records if "z" in record)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array `name` over all draws so far, shape (chains, draws, ...)."""
        return np.concatenate([record[name] for record in self.records if name in record], axis=1)

    def append(self, state: Any, draws: dict[str, Any] | None) -> None:
        """Append a block: the states of the chains after it, and its draws, or None for a block of the warm-up."""
        record = {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        record |= {name: np.asarray(array) for name, array in (draws or {}).items()}
        if self._file is not None:
            _append(self._file, self.n_blocks, record)
        self.records.append(record)

    def state_like(self, state: Any) -> Any:
        """The states after the last block, in the structure of `state`; `state` itself if there is no block."""
        if not self.records:
            return state
        leaves, structure = jax.tree.flatten(state)
        stored = [jax.numpy.asarray(self.records[-1][f"state{i}"]) for i in range(len(leaves))]
        return jax.tree.unflatten(structure, stored)


def fingerprint(value: Any) -> str:
    """Hash of an object's content, by joblib: equal for equal numbers, strings and arrays in objects of the same classes."""
    from joblib import hash  # type: ignore[import-untyped]

    try:
        return f"{HASH}{hash(value, coerce_mmap=True)}"
    except (TypeError, PicklingError) as error:
        raise CheckpointError(
            f"A checkpoint can identify only numbers, texts and arrays: {error.args[0]}. Keep nothing else in the model and "
            "the sampler, or run without checkpoint."
        ) from None


def _open(path: Path) -> IO[bytes]:
    """Open and lock the file, creating it if it does not exist."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a regular file: give another file name.")
    try:
        return lock(path)
    except InUseError:
        raise CheckpointError(
            f"{path} is in use by another process: wait for it, or give another file name."
        ) from None


def _start(file: IO[bytes], head: dict[str, Any]) -> None:
    """Write the header."""
    file.truncate(0)
    line = json.dumps(head, sort_keys=True).encode()
    file.write(MAGIC + line + b" %08x\n" % zlib.crc32(line))
    file.flush()
    os.fsync(file.fileno())


def _append(file: IO[bytes], number: int, record: Record) -> None:
    """Write one record at the end."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **record)
    body = buffer.getvalue()
    try:
        file.write(HEAD.pack(number, len(body), _checksum(number, body)) + body)
        file.flush()
    except OSError as error:
        raise OSError(
            f"{file.name} could not be written: {error.strerror}. A run with it goes on after its last complete block."
        ) from error


def _checksum(number: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %d" % (number, len(body))))


def _resume(file: IO[bytes], problem: dict[str, Any]) -> tuple[int, list[Record]] | None:
    """Read the block size and the complete records of a file; truncate whatever follows the last one.

    Returns None for a file that ends within its header, as after an immediate kill.
    """
    file.seek(0)
    magic = file.read(len(MAGIC))
    if not MAGIC.startswith(magic):
        raise CheckpointError(
            f"{file.name} is not a checkpoint of this version of graphuq: give another file name."
        )
    heading = file.readline()
    if not heading.endswith(b"\n"):
        return None
    line, _, checksum = heading[:-1].rpartition(b" ")
    if checksum != b"%08x" % zlib.crc32(line):
        raise CheckpointError(f"{file.name} has a damaged first line: delete it to start anew.")
    stored = json.loads(line)
    block_size = int(stored.pop(BLOCK_SIZE))
    differences = [
        _difference(name, stored.get(name), problem.get(name))
        for name in sorted(stored.keys() | problem.keys())
        if stored.get(name) != problem.get(name)
    ]
    if differences:
        raise CheckpointError(
            f"{file.name} belongs to another problem: {'; '.join(differences)}. Give another file name."
        )
    records: list[Record] = []
    end = file.tell()
    while (record := _read(file, len(records))) is not None:
        end = file.tell()
        records.append(record)
    file.truncate(end)
    return block_size, records


def _difference(name: str, before: Any, now: Any) -> str:
    return f"{name} differ" if str(now).startswith(HASH) else f"{name} was {before!r} and is now {now!r}"


def _read(file: IO[bytes], number: int) -> Record | None:
    """Read the next record; None if the file ends, or the record is incomplete or has another number."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    stored_number, length, checksum = HEAD.unpack(head)
    if stored_number != number or length > os.fstat(file.fileno()).st_size - file.tell():
        return None
    body = file.read(length)
    if _checksum(number, body) != checksum:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return dict(arrays)
