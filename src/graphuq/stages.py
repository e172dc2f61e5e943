"""Parts of a computation in; the seconds that each took, and the most memory that was held, out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds that pass inside to those under a name."""
    began = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began


def peak_gigabytes() -> float:
    """The most memory that this process has held; NaN where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return float("nan")
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
