"""Named arrays and JSON facts in; one file, written atomically, verified when read and never executed, out.

The file is an uncompressed NPZ that NumPy can open. Its member `facts` is JSON and names the format; the ZIP
comment at the very end is the SHA-256 of all preceding bytes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import zipfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import why
from graphuq.files import whole_file
from graphuq.memory import NoRoom, check_room, size_in_words

Arrays = dict[str, NDArray[Any]]

# Largest possible ratio of unpacked to packed size, by ZIP compression method.
UNPACKED = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}

SEAL = 64  # bytes of the checksum, in hex


class Pickled(Exception):
    """An array holds pickled objects, which could run code when loaded."""


def write(path: Path, form: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one file atomically."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    encoded = json.dumps(dict(facts), allow_nan=False)
    body = json.dumps({"format": form, "facts": encoded}).encode()
    with whole_file(path) as part, part.open("w+b") as file:
        np.savez(file, facts=np.frombuffer(body, dtype=np.uint8), **contiguous)  # type: ignore[arg-type]
        with zipfile.ZipFile(file, "a") as members:
            members.comment = b"0" * SEAL
        seal = _digest(file)
        file.seek(-SEAL, os.SEEK_END)
        file.write(seal)


def read(path: Path, form: str, what: str, *, mapped: Container[str] = ()) -> tuple[dict[str, Any], Arrays]:
    """Read facts and arrays; errors say what is wrong with the file, where `what` is e.g. "a spectrum".

    Arrays named in `mapped` are memory-mapped.
    """
    with told_if_damaged(path, f"{path} is not {what} of graphuq, or is damaged"):
        try:
            arrays = read_npz(path, mapped=mapped)
        except Pickled as error:
            raise ValueError(error) from None
        head = json.loads(arrays.pop("facts").tobytes())
        stored, encoded = str(head["format"]), str(head["facts"])
        with path.open("rb") as file:
            intact = _digest(file) == file.read()
    if stored != form:
        raise ValueError(f"{path} holds the format {stored!r}, and this version reads {form!r}: make it again.")
    if not intact:
        raise ValueError(f"{path} was changed or damaged after it was written: its checksum differs.")
    return dict(json.loads(encoded)), arrays


@contextmanager
def told_if_damaged(path: Path, told: str) -> Iterator[None]:
    """Turn any exception from reading a damaged file into a ValueError, except for lack of memory.

    On corrupt bytes, the readers raise nearly every kind of exception.
    """
    try:
        yield
    except (NoRoom, Pickled, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            size = size_in_words(path.stat().st_size)
            raise NoRoom(f"{path}, a file of {size}, takes more memory than there is: {why(error)}.") from error
        raise ValueError(f"{told}: {why(error)}.") from error


def read_npz(path: Path, *, mapped: Container[str] = ()) -> Arrays:
    """Read an NPZ file without unpickling: objects raise `Pickled`. Use within `told_if_damaged`."""
    if not os.path.isfile(path) and os.path.exists(path) and not os.path.isdir(path):
        raise ValueError("it is not a regular file")  # reading a pipe would block forever
    arrays: Arrays = {}
    # opened here because np.load leaves a damaged file open; by its path as text, which np.memmap keeps as its name
    with open(str(path), "rb") as stream, zipfile.ZipFile(stream) as members:
        check_members(members, apart=mapped)
        for name in members.namelist():
            if not name.endswith(".npy"):
                raise ValueError(f"it holds more than arrays: {name[:80]!r}")
        for entry in members.infolist():
            name = entry.filename.removesuffix(".npy")
            with members.open(entry) as member:
                layout = _read_header(member, entry)
                if name in mapped and entry.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _map(stream, entry.header_offset, member.tell(), *layout)
                    continue
            with members.open(entry) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):  # reading to the end also verifies the checksum
                    raise ValueError(f"{entry.filename[:80]!r} holds more than its heading says")
    return arrays


def _map(stream: Any, header_offset: int, npy_header: int, shape: Any, fortran: bool, dtype: Any) -> NDArray[Any]:
    """Memory-map an array, which starts after the ZIP header of its member and its NPY header.

    The open file is mapped rather than its path, where another file may have taken its place meanwhile.
    """
    stream.seek(header_offset)
    name, extra = struct.unpack_from("<HH", stream.read(30), 26)
    start = header_offset + 30 + name + extra + npy_header
    return np.memmap(stream, dtype, "r", start, shape, "F" if fortran else "C")


def check_members(members: zipfile.ZipFile, *, apart: Container[str] = ()) -> None:
    """Raise an error for a ZIP file that is encrypted, lacks a member, or does not fit into memory unpacked."""
    assert members.fp is not None  # it is open
    members.fp.seek(-22 - len(members.comment), os.SEEK_END)  # end-of-directory record, with the number of members
    (count,) = struct.unpack_from("<H", members.fp.read(22), 10)
    if count not in (len(members.infolist()), 0xFFFF):  # 0xFFFF: more than the field can hold
        raise zipfile.BadZipFile(f"it counts {count} members, and {len(members.infolist())} are found")
    if any(entry.flag_bits & 1 for entry in members.infolist()):
        raise ValueError("it is encrypted")
    size = members.fp.seek(0, os.SEEK_END)
    for entry in members.infolist():
        if max(entry.compress_size, entry.file_size / UNPACKED.get(entry.compress_type, np.inf)) > size:
            raise zipfile.BadZipFile(f"it promises more than it holds: {entry.filename[:80]!r}")
    unpacked = [entry for entry in members.infolist() if entry.filename.removesuffix(".npy") not in apart]
    name = os.path.basename(str(members.filename))
    check_room(sum(entry.file_size for entry in unpacked), f"{name}, unpacked,", "Free some.")


def _read_header(member: Any, entry: zipfile.ZipInfo) -> tuple[Any, bool, Any]:
    """Read shape, Fortran order and dtype of an array; reject objects, and sizes beyond the member's."""
    version = np.lib.format.read_magic(member)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(member)
    if dtype.hasobject:
        name = entry.filename.removesuffix(".npy")
        raise Pickled(f"pickled objects in {name!r}, which can run code when they are loaded")
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename[:80]!r} holds less than its heading says")
    return shape, fortran, dtype


def _digest(file: IO[bytes]) -> bytes:
    """The SHA-256 of all but the seal, in hex; leaves the file positioned at the seal."""
    remaining, digest = file.seek(0, os.SEEK_END) - SEAL, hashlib.sha256()
    file.seek(0)
    while remaining > 0 and (chunk := file.read(min(remaining, 2**20))):
        digest.update(chunk)
        remaining -= len(chunk)
    return digest.hexdigest().encode()
