"""Named arrays and facts in; one file that is written whole, checked when it is read, and never executed, out.

The file is an uncompressed NPZ: NumPy opens it. One member, `facts`, is JSON with the format; the comment at its very
end is the SHA-256 of every byte before.
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

# Bytes that one of a member of a ZIP file unpacks to at most.
UNPACKED = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}

SEAL = 64  # bytes of the checksum


class Pickled(Exception):
    """An array holds objects, which could run code when they are loaded."""


def write(path: Path, form: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write one file, whole or not at all."""
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    told = json.dumps(dict(facts), allow_nan=False)
    body = json.dumps({"format": form, "facts": told}).encode()
    with whole_file(path) as part, part.open("w+b") as file:
        np.savez(file, facts=np.frombuffer(body, dtype=np.uint8), **kept)  # type: ignore[arg-type]
        with zipfile.ZipFile(file, "a") as members:
            members.comment = b"0" * SEAL
        seal = _digest(file)
        file.seek(-SEAL, os.SEEK_END)
        file.write(seal)


def read(path: Path, form: str, what: str, *, mapped: Container[str] = ()) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a file, or a sentence that says what is wrong with it; `what` is "a spectrum", say.

    Arrays of the names in `mapped` stay where they lie, and are read when they are looked at.
    """
    with told_if_damaged(path, f"{path} is not {what} of graphuq, or is damaged"):
        try:
            arrays = read_npz(path, mapped=mapped)
        except Pickled as error:
            raise ValueError(error) from None
        head = json.loads(arrays.pop("facts").tobytes())
        found, told = str(head["format"]), str(head["facts"])
        with path.open("rb") as file:
            whole = _digest(file) == file.read()
    if found != form:
        raise ValueError(f"{path} holds the format {found!r}, and this version reads {form!r}: make it again.")
    if not whole:
        raise ValueError(f"{path} was changed or damaged after it was written: its checksum is another.")
    return dict(json.loads(told)), arrays


@contextmanager
def told_if_damaged(path: Path, told: str) -> Iterator[None]:
    """What is wrong with a file in a sentence; that there is no memory for it is nothing wrong.

    Where bytes are not what they should be, those who read them raise nearly every kind of exception.
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
    """The arrays of an NPZ file; objects raise `Pickled` and are not loaded. What else is wrong `told_if_damaged` tells."""
    if not os.path.isfile(path) and os.path.exists(path) and not os.path.isdir(path):
        raise ValueError("it is no regular file")  # reading a pipe would wait for ever
    arrays: Arrays = {}
    # opened here, since np.load leaves a damaged file open
    with open(path, "rb") as stream, zipfile.ZipFile(stream) as members:
        check_members(members, apart=mapped)
        for name in members.namelist():
            if not name.endswith(".npy"):
                raise ValueError(f"it holds more than arrays: {name[:80]!r}")
        for each in members.infolist():
            name = each.filename.removesuffix(".npy")
            with members.open(each) as member:
                laid_out = _check_heading(member, each)
                if name in mapped and each.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _map(path, stream, each.header_offset, member.tell(), *laid_out)
                    continue
            with members.open(each) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):  # at the end of a member its checksum is compared
                    raise ValueError(f"{each.filename[:80]!r} holds more than its heading says")
    return arrays


def _map(
    path: Path, stream: IO[bytes], first: int, heading: int, shape: Any, turned: bool, kind: Any
) -> NDArray[Any]:
    """An array where it lies in the file, behind the headings of its member and its own."""
    stream.seek(first)
    name, extra = struct.unpack_from("<HH", stream.read(30), 26)
    start = first + 30 + name + extra + heading
    return np.memmap(path, kind, "r", start, shape, "F" if turned else "C")


def check_members(members: zipfile.ZipFile, *, apart: Container[str] = ()) -> None:
    """Refuse a ZIP file that is encrypted, larger unpacked than the memory that is left, or that has lost a member."""
    assert members.fp is not None  # it is open
    members.fp.seek(-22 - len(members.comment), os.SEEK_END)  # the record at its end, which counts the members
    (count,) = struct.unpack_from("<H", members.fp.read(22), 10)
    if count not in (len(members.infolist()), 0xFFFF):  # or more than this field holds
        raise zipfile.BadZipFile(f"it counts {count} members, and {len(members.infolist())} are found")
    if any(each.flag_bits & 1 for each in members.infolist()):
        raise ValueError("it is encrypted")
    size = members.fp.seek(0, os.SEEK_END)
    for each in members.infolist():
        if max(each.compress_size, each.file_size / UNPACKED.get(each.compress_type, np.inf)) > size:
            raise zipfile.BadZipFile(f"it promises more than it holds: {each.filename[:80]!r}")
    unpacked = [each for each in members.infolist() if each.filename.removesuffix(".npy") not in apart]
    name = os.path.basename(str(members.filename))
    check_room(sum(each.file_size for each in unpacked), f"{name}, unpacked,", "Free some.")


def _check_heading(member: Any, entry: zipfile.ZipInfo) -> tuple[Any, bool, Any]:
    """How an array is laid out; refuse objects, and what promises more than the member holds, before room is made for it."""
    version = np.lib.format.read_magic(member)
    heading = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, turned, dtype = heading(member)
    if dtype.hasobject:
        name = entry.filename.removesuffix(".npy")
        raise Pickled(f"pickled objects in {name!r}, which can run code when they are loaded")
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename[:80]!r} holds less than its heading says")
    return shape, turned, dtype


def _digest(file: IO[bytes]) -> bytes:
    """The checksum of all but the seal, where the file then stands."""
    left, digest = file.seek(0, os.SEEK_END) - SEAL, hashlib.sha256()
    file.seek(0)
    while left > 0 and (part := file.read(min(left, 2**20))):
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()
