"""A name in; a file or folder that is there whole or not at all, whatever happens meanwhile, out.

What is written stands under a hidden name until it is whole. A process holds a lock on it while it lives, so what a
killed one left is known by its lock being free: the next that writes the same target puts it right.
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
except ImportError:  # on Windows nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK, NEW, OLD = "lock", "new", "old"  # in the hidden folder of a folder that is being written
HELD = ".lock"  # in a folder that is written piece by piece


class InUseError(OSError):
    """Another process holds the file."""


def _in_use(target: Path) -> ValueError:
    return ValueError(f"Another process is writing {target}: wait for it, or choose another folder.")


def lock(path: Path) -> IO[bytes]:
    """The file, opened to add to it (and made, if need be), and locked until it is closed or the process ends."""
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
    """Refuse to replace a folder, a pipe or a device: it is no file of ours, and cannot be had back."""
    if target.exists() and not target.is_file():
        raise ValueError(f"{target} is not a regular file, so it is not replaced: choose another name.")


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A name to write to, which becomes `target` if all goes well and vanishes if not.

    It is one of its own, so that two processes may write the same file at once: the last one stays. Of a link
    the file that it points to is written.
    """
    refuse_irregular(target)
    target = Path(os.path.realpath(target))
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError), lock(left):
            left.unlink()
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _lock_own(part):
            yield part
            os.replace(part, target)
    except OSError as error:
        raise OSError(f"{target} could not be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _lock_own(path: Path) -> IO[bytes]:
    """The same for a file that only another which tidies up may hold, for a moment."""
    while True:
        with suppress(InUseError):
            return lock(path)


def check_target(out: Path | None, force: bool, *read: Path, by: str = "--force") -> None:
    """Whether a file may be written, or replaced `by` so much, asked before any work; what is read is never replaced."""
    if out is None and force:
        raise ValueError("--force replaces what --out names, and that is not given: leave it out.")
    if out is None:
        return
    refuse_irregular(out)
    if any(out.exists() and each.exists() and out.samefile(each) for each in read):
        raise ValueError(f"{out} is what is read here, and would be lost: choose another name.")
    if out.exists() and not force:
        raise ValueError(f"{out} exists already: choose another name, or replace it with {by}.")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {out.absolute().parent} to write {out.name} into.")


@contextmanager
def whole_folder(
    target: Path, *, replace: bool = False, foreign: Callable[[Path], str | None] = lambda old: None
) -> Iterator[Path]:
    """A folder to write into, which becomes `target` if all goes well and vanishes if not.

    What exists is left as it is, unless `replace` is set and `foreign`, which names the first thing in a folder that
    is not ours, finds nothing. What appears at `target` meanwhile is kept, and the new folder gets another name.
    One process at a time writes a target. Of a link the folder that it points to is written.
    """
    target = Path(os.path.realpath(target))
    if target == target.parent:
        raise ValueError(f"{target} holds everything there is: choose another folder.")
    try:
        with _working_folder(target) as work:
            if target.exists() and not replace:
                raise ValueError(f"{target} exists already: choose another folder, or replace it with --force.")
            if target.exists() and (found := foreign(target) if target.is_dir() else target.name):
                raise ValueError(
                    f"{target} holds something that graphuq did not write, {found}: it is not replaced."
                )
            (work / NEW).mkdir()
            yield work / NEW
            target.parent.mkdir(parents=True, exist_ok=True)
            _put(work, target, replace, foreign)
    except InUseError:
        raise _in_use(target) from None
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error  # whole_file names its own file
        raise ValueError(f"{target} could not be written, and nothing was: {cause.strerror or cause}.") from error


@contextmanager
def made_folder(target: Path) -> Iterator[None]:
    """A folder, made with those above it if need be; it, and those that were made, vanish if they stay empty."""
    made = [each for each in target.parents if not each.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for each in (target, *made):
                each.rmdir()


@contextmanager
def held_folder(target: Path) -> Iterator[None]:
    """A folder that is written piece by piece, by one process at a time; one that stays empty vanishes."""
    with made_folder(target):
        try:
            file = lock(target / HELD)
        except InUseError:
            raise _in_use(target) from None
        with file:
            try:
                yield
            finally:
                with suppress(OSError):
                    (target / HELD).unlink()


def recover(target: Path) -> None:
    """Put right what a killed `whole_folder` left: an old folder that was moved away comes back, the rest is removed."""
    target = Path(os.path.realpath(target))
    if _work(target).is_dir():
        with suppress(OSError), _working_folder(target):  # or it is being written at this moment
            pass


def _put(work: Path, target: Path, replace: bool, foreign: Callable[[Path], str | None]) -> None:
    """Give the new folder its name; what stands there now is moved away, or kept if it is not ours to replace."""
    if replace and target.is_dir():
        target.rename(work / OLD)  # first, so that nothing is added to it while it is looked at
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


def _work(target: Path) -> Path:
    """Beside the target, or in the first folder above that exists."""
    home = next(parent for parent in target.parents if parent.exists())
    return home / f".{'+'.join(target.relative_to(home).parts)}.part"


@contextmanager
def _working_folder(target: Path) -> Iterator[Path]:
    """A hidden, locked folder beside the target, emptied first of what a killed process left in it."""
    work = _work(target)
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
    """Remove what is unfinished or replaced; an old folder whose successor did not take its place stays the user's."""
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
