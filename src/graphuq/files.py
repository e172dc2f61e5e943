"""A name in; a file that is there whole or not at all, whatever happens meanwhile, out."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A name to write to, which becomes `target` if all goes well and vanishes if not.

    It is one of its own, so that two processes may write the same file at once: the last one stays.
    """
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        os.replace(part, target)
    except OSError as error:
        raise OSError(f"{target} could not be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink()
