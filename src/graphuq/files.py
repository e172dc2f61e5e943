"""A path in; a file or folder that is written atomically, even if the process is killed, out.

Output is written under a hidden name and renamed when complete. The writing process holds a lock on it, so
leftovers of a killed process are recognized by their free lock, and the next process that writes the same target
cleans them up.
"""

from __future__ import annotations

import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no locking on Windows
    fcntl = None  # type: ignore[assignment]

LOCK, NEW, OLD = "lock", "new", "old"  # names in the hidden working folder of `whole_folder`
HELD = ".lock"  # lock file in a folder that is written piece by piece


class InUseError(OSError):
    """Another process holds the file."""


def _in_use_error(target: Path) -> ValueError:
    return ValueError(f"Another process is writing {target}: wait for it, or choose another folder.")


def lock(path: Path) -> IO[bytes]:
    """Open a file for appending, creating it if needed, and lock it until it is closed or the process ends."""
    while True:
        file = path.open("a+b")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except BlockingIOError:
            file.close()
            raise InUseError(f"{path} is in use by another process: wait for it, or give another name.") from None
        except FileNotFoundError:  # the process that held it before has just removed it
            pass
        file.close()


def refuse_irregular(target: Path) -> None:
    """Raise an error if the target is a folder, pipe or device, which must not be replaced."""
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} is not a regular file, so it is not replaced: choose another name.")


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `target` on success and removed on failure.

    The path is unique, so that several processes may write the same file at once: the last one wins. If the target
    is a symbolic link, the file it points to is written.
    """
    refuse_irregular(target)
    target = Path(os.path.realpath(target))
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError), lock(leftover):
            leftover.unlink()
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _lock_new(part):
            yield part
            os.replace(part, target)
    except OSError as error:
        raise OSError(f"{target} could not be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(target: Path, text: str) -> None:
    """Write a file of text as a whole."""
    with whole_file(target) as part:
        part.write_text(text, encoding="utf-8", newline="")


def _lock_new(path: Path) -> IO[bytes]:
    """Lock a new file; another process that is cleaning up may hold it briefly, so retry."""
    while True:
        with suppress(InUseError):
            return lock(path)


def check_target(out: Path | None, force: bool, *kept: Path, by: str = "--force") -> None:
    """Check before any work that `out` may be written; raise an error otherwise.

    An existing file is replaced only by `force`, which messages call `by`; the files in `kept`, such as those being
    read, never are.
    """
    if out is None and force:
        raise ValueError("--force replaces what --out names, and that is not given: leave it out.")
    if out is None:
        return
    refuse_irregular(out)
    if any(out.exists() and source.exists() and out.samefile(source) for source in kept):
        raise ValueError(f"{out} is read here, or belongs to a fit, and would be lost: choose another name.")
    if out.exists() and not force:
        raise ValueError(f"{out} exists already: choose another name, or replace it with {by}.")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {out.absolute().parent} to write {out.name} into.")


def refuse_foreign(folder: Path, *ours: str) -> None:
    """Raise an error if a folder is not empty and has none of the entries that identify one of ours."""
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).exists() for name in ours):
        raise ValueError(f"{folder} holds something that graphuq did not write: choose another folder.")


@contextmanager
def whole_folder(
    target: Path, *, replace: bool = False, foreign: Callable[[Path], str | None] = lambda old: None
) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `target` on success and removed on failure.

    An existing target is replaced only if `replace` is set and `foreign`, which names the first entry of a folder
    that is not ours, returns None. A target that appears meanwhile is kept, and the new folder gets another name.
    One process at a time writes a target. If the target is a symbolic link, the folder it points to is written.
    """
    target = Path(os.path.realpath(target))
    if target == target.parent:
        raise ValueError(f"{target} holds everything there is: choose another folder.")
    try:
        with _working_folder(target) as work:
            if target.exists() and not replace:
                raise ValueError(f"{target} exists already: choose another folder, or replace it with --force.")
            if target.exists() and (entry := foreign(target) if target.is_dir() else target.name):
                raise ValueError(
                    f"{target} holds something that graphuq did not write, {entry}: it is not replaced."
                )
            (work / NEW).mkdir()
            yield work / NEW
            target.parent.mkdir(parents=True, exist_ok=True)
            _move_into_place(work, target, replace, foreign)
    except InUseError:
        raise _in_use_error(target) from None
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error  # whole_file names its own file
        raise ValueError(f"{target} could not be written, and nothing was: {cause.strerror or cause}.") from error


@contextmanager
def made_folder(target: Path) -> Iterator[None]:
    """Create a folder and its parents if needed; on exit, remove those that were created if they are empty."""
    created = [folder for folder in (target, *target.parents) if not folder.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in created:
                folder.rmdir()


@contextmanager
def held_folder(target: Path) -> Iterator[None]:
    """Lock a folder that one process at a time writes piece by piece; create and remove it as `made_folder` does."""
    with made_folder(target):
        try:
            file = lock(target / HELD)
        except InUseError:
            raise _in_use_error(target) from None
        with file:
            try:
                yield
            finally:
                with suppress(OSError):
                    (target / HELD).unlink()


def recover(target: Path) -> None:
    """Clean up after a killed `whole_folder`: restore an old folder that was moved away, remove the rest."""
    target = Path(os.path.realpath(target))
    if _working_path(target).is_dir():
        with suppress(OSError), _working_folder(target):  # an error means that it is being written right now
            pass


def _move_into_place(work: Path, target: Path, replace: bool, foreign: Callable[[Path], str | None]) -> None:
    """Rename the new folder to `target`; replace an old one, or keep it if it is not ours to replace."""
    if replace and target.is_dir():
        target.rename(work / OLD)  # first, so that nothing is added while it is checked
        if foreign(work / OLD) is None:
            (work / NEW).rename(target)
            shutil.rmtree(work / OLD)
            return
        (work / OLD).rename(target)
    if not target.exists():
        (work / NEW).rename(target)
        return
    (work / NEW).rename(other := _free_name(target))
    raise ValueError(f"{target} appeared or was added to meanwhile, so it is kept: the result is in {other}.")


def _working_path(target: Path) -> Path:
    """The path of the hidden working folder: beside the target, or in its first existing parent."""
    home = next(parent for parent in target.parents if parent.exists())
    return home / f".{'+'.join(target.relative_to(home).parts)}.part"


@contextmanager
def _working_folder(target: Path) -> Iterator[Path]:
    """Yield the hidden working folder, locked and cleared of leftovers of a killed process."""
    work = _working_path(target)
    held = None
    while held is None:
        work.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # the process that held it before has just removed it
            held = lock(work / LOCK)
    with held:
        try:
            _tidy(work, target)
            yield work
        finally:
            _tidy(work, target)
            with suppress(OSError):
                (work / LOCK).unlink()
                work.rmdir()


def _tidy(work: Path, target: Path) -> None:
    """Remove unfinished and replaced folders; restore an old folder that was not replaced after all."""
    if (work / OLD).exists():
        if not target.exists():
            (work / OLD).rename(target)
        elif (work / NEW).exists():  # something else took its place meanwhile
            (work / OLD).rename(_free_name(target))
    shutil.rmtree(work / OLD, ignore_errors=True)
    shutil.rmtree(work / NEW, ignore_errors=True)


def _free_name(target: Path) -> Path:
    names = (target.with_name(f"{target.name}-{n}") for n in range(2, 1000))
    return next(name for name in names if not name.exists())
