"""A name in; a file that is there whole or not at all, whatever happens meanwhile, out."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        os.replace(part, target)
    except OSError as error:
        raise OSError(f"{target} could not be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def check_target(out: Path | None, force: bool) -> None:
    """Whether a file may be written, asked before any work."""
    if out is None:
        return
    refuse_irregular(out)
    if out.exists() and not force:
        raise ValueError(f"{out} exists already: choose another name, or replace it with --force.")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {out.absolute().parent} to write {out.name} into.")
