"""A tall matrix and a function of its blocks in; the results in order, by local threads or a Dask cluster, out.

The cluster is that of the open `distributed.Client`, if any. Dask does all scheduling and handles workers that
die.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import RowError
from graphuq._needed import needed
from graphuq._progress import progress_bar
from graphuq._threads import Made, Part, alone, in_order, in_threads, n_cores
from graphuq.large import sums
from graphuq.large.sums import Sums
from graphuq.memory import check_room
from graphuq.tall import PART_ROWS, Array, Tall

Work = Callable[[slice, Array], Any]

# Memory held while working on a block, in multiples of its size.
WORKING = 4


class SchedulerLost(ConnectionError):
    """Raised when the Dask scheduler cannot be reached, or the connection to it is lost."""


@contextmanager
def cluster(*, scheduler: str | None = None, workers: int | None = None, patience: float = 10.0) -> Iterator[None]:
    """Context in which work runs on a scheduler's cluster or local worker processes; with neither, in threads."""
    if scheduler is None and workers is None:
        yield
        return
    if scheduler is not None and workers is not None:
        raise ValueError(f"The Dask scheduler at {scheduler} has workers of its own: leave out --workers.")
    dask = needed("distributed", "Clusters need Dask")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is raised as an error
    with ExitStack() as held:
        if scheduler is None:
            local = dask.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            held.enter_context(dask.Client(held.enter_context(local)))
        else:
            try:
                held.enter_context(dask.Client(scheduler, timeout=patience))
            except (OSError, ValueError) as error:
                raise SchedulerLost(
                    f"No Dask scheduler answers at {scheduler}: start one with `dask scheduler`, or give another address."
                ) from error
        yield


def client() -> Any:
    """The open Dask client, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def summed(X: Tall, work: Callable[[Array], Sums], *, shown: bool | None = False, desc: str | None = None) -> Sums:
    """Sum of `work` over all rows, added in order, so that the result does not depend on scheduling.

    Work gets at most `PART_ROWS` rows at a time, which stay in the cache. Inside `sums.kept_sums`, long sums
    resume where an earlier run was stopped.
    """
    slices = X.slices()

    def blocks(n_done: int, _: Sums | None) -> Iterator[Sums]:
        return each_block(X, partial(_in_parts, work), chosen=slices[n_done:], shown=shown, desc=desc)

    return sums.going_on(blocks, _added, work, X.bounds)


def each_block(
    X: Tall,
    work: Work,
    *,
    chosen: Sequence[slice] | None = None,
    shown: bool | None = False,
    desc: str | None = None,
) -> Iterator[Any]:
    """Results of `work` on each block of rows, or on those chosen, in order."""
    slices = X.slices() if chosen is None else chosen
    open_client = None if X.in_memory else client()
    with progress_bar(len(slices), shown=shown, unit="block", desc=desc) as bar:
        local = open_client is None
        for result in _by_threads(X, work, slices) if local else _by_cluster(open_client, X, work, slices):
            bar.update()
            yield result


def each_part(work: Callable[[Part], Made], parts: Iterable[Part], *, here: bool) -> Iterator[Made]:
    """Results of `work` on each part, in order: by local threads (`here`), or by the open cluster, if any."""
    open_client = None if here else client()
    if open_client is None:
        yield from in_threads(work, parts)
        return
    with told_if_lost():
        futures = (open_client.submit(_alone, work, part, pure=False) for part in parts)
        yield from in_order(futures, ahead=2 * sum(open_client.nthreads().values()))


def check_finite(rows: slice, X: Array) -> None:
    """Refuse a block with NaN or infinite values."""
    if np.isfinite(X.sum()):
        return
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if bad.size:
        many = f"{bad.size:,} rows, the first of them " if bad.size > 1 else ""
        raise RowError(
            f"The block of rows {rows.start:,} to {rows.stop - 1:,} has NaN or infinite values in {many}row "
            "{}. Fill in what is missing, or remove such rows.",
            rows.start + int(bad[0]),
        )


def _added(total: Sums | None, part: Sums) -> Sums:
    return part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))


def _in_parts(work: Callable[[Array], Sums], rows: slice, X: Array) -> Sums:
    """Sum of `work` over a block, `PART_ROWS` rows at a time."""
    check_finite(rows, X)
    total = None
    for first in range(0, len(X), PART_ROWS):
        try:
            total = _added(total, work(X[first : first + PART_ROWS]))
        except RowError as error:  # its row number is relative to this part
            raise error.after(rows.start + first) from None
    assert total is not None  # a block has rows
    return total


def _by_threads(X: Tall, work: Work, slices: Sequence[slice]) -> Iterator[Any]:
    """Results of work on blocks, one block per core at a time: one thread reads while another computes."""
    at_once = min(n_cores(), len(slices))
    largest = max(rows.stop - rows.start for rows in slices) if slices else 0
    check_room(
        WORKING * 8.0 * at_once * largest * X.shape[1],
        f"Work on {at_once} block{'s' if at_once > 1 else ''} of {largest:,} rows",
        "Store the features in smaller chunks.",
    )
    return in_threads(lambda rows: work(rows, X.rows(rows)), slices)


def _by_cluster(cluster: Any, X: Tall, work: Work, slices: Sequence[slice]) -> Iterator[Any]:
    """Results of work on blocks, all submitted to the cluster at once and collected in order."""
    from dask import delayed

    with told_if_lost():
        shared = delayed(work, pure=False, traverse=False)
        pending = deque(cluster.compute([delayed(_task)(shared, rows, X.source.lazy(rows)) for rows in slices]))
        while pending:  # dropping a future lets the cluster release its result
            yield pending.popleft().result()


def _task(work: Work, rows: slice, X: NDArray[Any]) -> Any:
    return _alone(partial(work, rows), np.asarray(X, dtype=np.float64))


def _alone(work: Callable[[Part], Made], part: Part) -> Made:
    """Run work in this thread alone: the cluster has the others."""
    with alone():
        return work(part)


@contextmanager
def told_if_lost() -> Iterator[None]:
    """Context that turns failures of the open client's cluster into errors with a readable message."""
    open_client = client()
    if open_client is None:
        yield
        return
    from distributed import comm
    from distributed.scheduler import KilledWorker

    address = open_client.scheduler.address if open_client.scheduler else "its address"
    try:
        yield
    except (CancelledError, comm.CommClosedError, TimeoutError) as error:
        raise SchedulerLost(
            f"The Dask scheduler at {address} does not answer any more. What was finished is kept: start the scheduler "
            "and run the same again, which goes on from there."
        ) from error
    except KilledWorker as error:
        raise MemoryError(
            "A block killed every worker of the Dask cluster that tried it: give the workers more memory, or store the "
            "features in smaller chunks."
        ) from error
