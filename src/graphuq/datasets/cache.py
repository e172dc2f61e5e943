"""File names, checksums and sources in; verified bytes, cached on disk between runs, out."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from graphuq.files import whole_file

_log = logging.getLogger(__name__)


class DatasetUnavailable(OSError):
    """Raised when no source can deliver the data; says what was tried, why each failed, and what to do."""


@dataclass(frozen=True)
class Source:
    """A source of a data set: its name, and a function that fetches the files, by file name."""

    name: str
    fetch: Callable[[], Mapping[str, bytes]]


def data_folder() -> Path:
    """Folder for data sets: ``GRAPHUQ_DATA`` if it is set, else the platform's cache folder."""
    if chosen := os.environ.get("GRAPHUQ_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "graphuq"


def load_files(folder: Path, sha256: Mapping[str, str], sources: Sequence[Source]) -> dict[str, bytes]:
    """Content of the files named in ``sha256``, from ``folder`` or else from the first source that has them.

    A file that does not match its checksum is never returned or kept: a corrupt file in ``folder`` is deleted, a
    corrupt download is not written. Raises DatasetUnavailable when all sources fail.
    """
    cached = {name: _read_cached(folder / name, digest) for name, digest in sha256.items()}
    intact = {name: content for name, content in cached.items() if content is not None}
    if len(intact) == len(sha256):
        return intact
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):  # before anything is downloaded in vain
        raise DatasetUnavailable(f"cannot write to {folder}: set GRAPHUQ_DATA to a folder you can write to")
    failures = []
    from tqdm import tqdm

    with tqdm(sources, unit="source", disable=None, leave=False) as bar:  # disable=None: only on a terminal
        for source in bar:
            bar.set_description(f"Fetching {folder.name}: {source.name}")
            try:
                fetched = _verified(source.fetch(), sha256)
            except Exception as error:  # a source may fail in any way; try the next
                _log.info("%s: %s failed: %s", folder.name, source.name, error)
                failures.append(f"  {source.name}: {type(error).__name__}: {error}")
                continue
            for name, content in fetched.items():
                with whole_file(folder / name) as part:
                    part.write_bytes(content)
            return fetched
    missing = ", ".join(name for name in sha256 if name not in intact)
    raise DatasetUnavailable(
        f"{folder.name} could not be obtained. Not in {folder}: {missing}. Tried:\n"
        + "\n".join(failures)
        + f"\nConnect to the network and try again, or put these files into {folder} "
        "(the environment variable GRAPHUQ_DATA moves the data folder)."
    )


def _read_cached(path: Path, digest: str) -> bytes | None:
    """Content of a cached file; None if it is missing, or corrupt and therefore deleted."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() == digest:
        return content
    _log.warning("%s is damaged (its sha256 is wrong): deleted", path)
    path.unlink(missing_ok=True)
    return None


def _verified(files: Mapping[str, bytes], sha256: Mapping[str, str]) -> dict[str, bytes]:
    """The files named in ``sha256``, with their checksums verified."""
    for name, digest in sha256.items():
        if name not in files:
            raise ValueError(f"it has no {name}")
        actual = hashlib.sha256(files[name]).hexdigest()
        if actual != digest:
            raise ValueError(f"the sha256 of {name} is {actual[:8]}..., not {digest[:8]}...")
    return {name: files[name] for name in sha256}
