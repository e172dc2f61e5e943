"""The size of a product, or work on many parts, in; how many threads share it, or what they made of the parts, out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

Part = TypeVar("Part")
Made = TypeVar("Made")

# From here on threads share the work of a product: on two cores they gain nothing before.
MANY_MULTIPLICATIONS = 1e9


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  # its library is another than NumPy's, and is found once it is loaded

    return ThreadpoolController().select(user_api="blas")


class _OneThread:
    """One thread from when the first enters until the last has left: the number is that of the whole process."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _blas().limit(limits=1)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


_ONE = _OneThread()


def blas_threads(n_multiplications: float) -> AbstractContextManager[Any]:
    """One thread for small matrices: there, threads that wait for each other cost more than they bring,
    most of all on a busy machine.
    """
    return nullcontext() if n_multiplications > MANY_MULTIPLICATIONS else _ONE


def in_threads(work: Callable[[Part], Made], parts: Iterable[Part]) -> Iterator[Made]:
    """What work makes of each part, in their order: a part for each core at a time, and its products on that core alone.

    Threads of the linear algebra library wait for each other at every product, and burn the time.
    """
    n_threads = os.cpu_count() or 1
    with blas_threads(0), ThreadPoolExecutor(n_threads) as pool:
        yield from in_order((pool.submit(work, part) for part in parts), n_threads)


def in_order(handed_out: Iterable[Any], ahead: int) -> Iterator[Any]:
    """The results of what is handed out, in its order; of no more than so many parts at a time."""
    pending: deque[Any] = deque()
    for each in handed_out:
        pending.append(each)
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
