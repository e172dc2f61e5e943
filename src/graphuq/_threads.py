"""The size of a product, or a function and many parts, in; a limit on BLAS threads, or results in order, out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock, local
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

Part = TypeVar("Part")
Made = TypeVar("Made")

# Products larger than this use several BLAS threads; smaller ones gain nothing from them, measured on two cores.
MANY_MULTIPLICATIONS = 1e9


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  # may bring a BLAS other than NumPy's, which is found only once loaded

    return ThreadpoolController().select(user_api="blas")


class _OneThread:
    """Limit to one BLAS thread, lifted when the last user leaves: the setting is process-wide.

    If Ctrl-C interrupts it, the next use repairs the damage: the earlier settings are kept until they are restored, and
    a user that could not leave is dropped with the frame that held it.
    """

    _lock = Lock()
    _inside: ClassVar[WeakSet[_OneThread]] = WeakSet()
    _before: ClassVar[list[tuple[Any, int]]] = []  # libraries and their numbers of threads

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _OneThread._before = self._before or [(each, each.num_threads) for each in _blas().lib_controllers]
                for library, _ in self._before:
                    library.set_num_threads(1)
            self._inside.add(self)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside.discard(self)
            if not self._inside:
                for library, n_threads in self._before:
                    library.set_num_threads(n_threads)
                _OneThread._before = []


def blas_threads(n_multiplications: float) -> AbstractContextManager[Any]:
    """Context that limits BLAS to one thread for small products.

    There, synchronization costs more than threads gain, most of all on a busy machine.
    """
    return nullcontext() if n_multiplications > MANY_MULTIPLICATIONS else _OneThread()


def eigen_threads(n_rows: int) -> AbstractContextManager[Any]:
    """Context that limits BLAS to one thread for an eigenproblem of up to 4,000 rows.

    Two threads have little to share there: at best they saved a fifth (1,500 rows), and where one other program ran they
    took three to seven times as long (1,500 to 3,000 rows).
    """
    return blas_threads(n_rows**3 / 64)


@cache
def n_cores() -> int:
    """Number of cores that this process may use: its affinity and the limits of a container count."""
    from joblib import cpu_count  # type: ignore[import-untyped]

    return int(cpu_count())


class _ThisThread(local):
    """Whether this thread already works on one part of a job, whose other parts are left to other threads."""

    is_part = False


_this_thread = _ThisThread()


@contextmanager
def alone() -> Iterator[None]:
    """Context in which this thread works by itself: single-threaded BLAS, and no other threads by `in_threads`."""
    before = _this_thread.is_part
    with blas_threads(0):
        _this_thread.is_part = True
        try:
            yield
        finally:
            _this_thread.is_part = before


def in_threads(work: Callable[[Part], Made], parts: Iterable[Part]) -> Iterator[Made]:
    """Results of `work` on each part, in order: one part per core at a time, with single-threaded BLAS.

    Threads inside BLAS would wait for each other at every product, at full CPU load. Within a part, a nested call runs
    its own parts one after another: otherwise as many as cores squared would run, and be in memory, at once.
    """
    if _this_thread.is_part:
        yield from map(work, parts)
        return

    def as_part(part: Part) -> Made:
        with alone():
            return work(part)

    n_threads = n_cores()
    with blas_threads(0), ThreadPoolExecutor(n_threads) as pool:
        yield from in_order((pool.submit(as_part, part) for part in parts), n_threads)


def in_order(handed_out: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Results of futures in order, with at most `ahead` of them pending while the next is submitted."""
    pending: deque[Any] = deque()
    for future in handed_out:
        pending.append(future)
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
