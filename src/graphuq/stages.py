"""Parts of a computation in; the seconds that each took, the peak memory, and the library versions out."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Context that adds its wall-clock time to ``seconds[name]``."""
    began = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began


def peak_gigabytes() -> float:
    """Peak resident memory of this process; NaN where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that determine the numbers."""
    names = ("numpy", "scipy", "scikit-learn", "jax")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
