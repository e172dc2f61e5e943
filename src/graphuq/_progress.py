"""Whether to show progress in; a tqdm bar, or a silent one, out; tqdm is imported only if shown.

True always shows progress and False never. None shows stages that take over a second, if standard error is a
terminal or the session is interactive (a notebook), and clears their bars when they are done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from multiprocessing import current_process
from threading import Timer, current_thread, main_thread
from typing import Any

import numpy as np

from graphuq._expect import expect

LONG = 1.0  # seconds

_current_tell: ContextVar[Callable[[str], None] | None] = ContextVar("telling", default=None)


def is_watched() -> bool:
    """Whether a person sees the output: main process and thread, in a terminal or an interactive session."""
    first = current_process().name == "MainProcess" and current_thread() is main_thread()
    return first and (hasattr(sys, "ps1") or (sys.stderr is not None and sys.stderr.isatty()))


class _Silent:
    """A progress bar that counts but shows nothing."""

    disable, n = True, 0

    def update(self, n: int = 1) -> None:
        """Advance by n."""
        self.n += n


def progress_bar(
    total: int, *, shown: bool | None, unit: str, desc: str | None = None, steady: bool = True
) -> Any:
    """A progress bar on standard error; it estimates the remaining time if steps take equally long (`steady`)."""
    expect(shown, (bool, np.bool_, type(None)), "progress", "True, False or None")
    if not (is_watched() if shown is None else shown):
        return nullcontext(_Silent())
    from tqdm.auto import tqdm

    bar_format = None if steady else f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} {unit}s, {{elapsed}}"
    settings = {"total": total, "unit": unit, "desc": desc, "bar_format": bar_format}
    if shown:
        return tqdm(**settings)
    began = time.monotonic()

    class Late(tqdm):  # tqdm's own delay does not apply to its postfix
        def display(self, *what: Any, **more: Any) -> Any:
            return super().display(*what, **more) if time.monotonic() - began > LONG else None

        def close(self) -> None:
            self.delay = 0  # else tqdm leaves a bar that was refreshed, but not updated since it was reset
            super().close()

    bar = Late(**settings, delay=LONG, leave=False)
    first_look = Timer(LONG * 1.01, bar.refresh)  # the first step may take long, e.g. to compile
    first_look.daemon = True
    first_look.start()
    return bar


@contextmanager
def stages_told(shown: bool | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that announces stages on standard error; with None, only after the first second.

    Nested uses share the outermost function.
    """
    if (outer := _current_tell.get()) is not None:
        yield outer
        return
    if not (is_watched() if shown is None else shown):
        yield lambda stage: None
        return
    from tqdm import tqdm

    def write(stage: str) -> None:
        tqdm.write(f"{stage} ...", file=sys.stderr)

    def tell(stage: str) -> None:
        last[:] = [stage]
        if not timer.is_alive():
            write(stage)

    def write_last() -> None:
        for stage in last:  # none, if none was announced yet
            write(stage)

    last: list[str] = []
    timer = Timer(LONG, write_last)
    timer.daemon = True
    if not shown:
        timer.start()
    token = _current_tell.set(tell)
    try:
        yield tell
    finally:
        _current_tell.reset(token)
        timer.cancel()


def restart(bar: Any, n: int, total: int) -> None:
    """Restart the clock of a bar at count n of total, so that earlier time, e.g. for compiling, enters no estimate."""
    bar.initial = 0  # `reset` shows the bar
    bar.reset(total)
    bar.initial = bar.n = bar.last_print_n = n
