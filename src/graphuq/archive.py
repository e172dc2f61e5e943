"""Named arrays and facts in; one file that is written whole, checked when it is read, and never executed, out.

The file is an uncompressed NPZ: NumPy opens it. One member, `facts`, is JSON with the format and, for every other
member, its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.files import whole_file

Arrays = dict[str, NDArray[Any]]


def write(path: Path, form: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one file, whole or not at all."""
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: _digest(array) for name, array in kept.items()}
    told = {"format": form, "facts": dict(facts), "sha256": sums}
    body = json.dumps({**told, "seal": _seal(told)}, allow_nan=False).encode()
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, facts=np.frombuffer(body, dtype=np.uint8), **kept)  # type: ignore[arg-type]


def read(path: Path, form: str, what: str) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a file, or a sentence that says what is wrong with it; `what` is "a spectrum", say."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays: Arrays = {name: file[name] for name in file.files}
        told = json.loads(arrays.pop("facts").tobytes())
        seal, found = told.pop("seal"), told["format"]
        sums: dict[str, str] = dict(told["sha256"])
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, NotImplementedError,
            RecursionError, MemoryError, RuntimeError, OverflowError, SyntaxError, zipfile.LargeZipFile) as error:  # fmt: skip
        raise ValueError(f"{path} is not {what} of graphuq, or is damaged.") from error
    if found != form:
        raise ValueError(f"{path} holds the format {found!r}, and this version reads {form!r}: make it again.")
    if seal != _seal(told) or {name: _digest(array) for name, array in arrays.items()} != sums:
        raise ValueError(f"{path} was changed or damaged after it was written: its checksum is another.")
    return dict(told["facts"]), arrays


def _digest(array: NDArray[Any]) -> str:
    head = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).data).hexdigest()


def _seal(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
