"""Whether to show how far things are in; a progress bar, or one that shows nothing, out: tqdm is imported where shown.

Yes and no are said as True and False. None leaves it to where we are: what takes over a second is shown to a person
who looks on, at a terminal or in a notebook, and taken off the screen when it is done.
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

_telling: ContextVar[Callable[[str], None] | None] = ContextVar("telling", default=None)


def looked_on() -> bool:
    """Whether a person sees what this process says: it is no worker's, no thread's, and goes to no file."""
    first = current_process().name == "MainProcess" and current_thread() is main_thread()
    return first and (hasattr(sys, "ps1") or (sys.stderr is not None and sys.stderr.isatty()))


class _Silent:
    """A bar that nobody sees: it counts, and says nothing."""

    disable, n = True, 0

    def update(self, n: int = 1) -> None:
        """So much further."""
        self.n += n


def progress_bar(
    total: int, *, shown: bool | None, unit: str, desc: str | None = None, steady: bool = True
) -> Any:
    """A bar of so many units, on standard error; what is left is told where they take steps of one length."""
    expect(shown, (bool, np.bool_, type(None)), "progress", "True, False or None")
    if not (looked_on() if shown is None else shown):
        return nullcontext(_Silent())
    from tqdm.auto import tqdm

    told = None if steady else f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} {unit}s, {{elapsed}}"
    settings = {"total": total, "unit": unit, "desc": desc, "bar_format": told}
    if shown:
        return tqdm(**settings)
    began = time.monotonic()

    class Late(tqdm):  # tqdm's own delay does not hold for what it says beside
        def display(self, *what: Any, **more: Any) -> Any:
            return super().display(*what, **more) if time.monotonic() - began > LONG else None

    return Late(**settings, delay=LONG, leave=False)


@contextmanager
def stages_told(shown: bool | None) -> Iterator[Callable[[str], None]]:
    """A function that tells, in a line on standard error, what begins; a None tells nothing within the first second.

    Inside another of these it is that one's.
    """
    if (outer := _telling.get()) is not None:
        yield outer
        return
    if not (looked_on() if shown is None else shown):
        yield lambda stage: None
        return
    from tqdm import tqdm

    def write(stage: str) -> None:
        tqdm.write(f"{stage} ...", file=sys.stderr)

    def tell(stage: str) -> None:
        last[:] = [stage]
        if not waiting.is_alive():
            write(stage)

    last: list[str] = []
    waiting = Timer(LONG, lambda: write(last[0]))
    waiting.daemon = True
    if not shown:
        waiting.start()
    before = _telling.set(tell)
    try:
        yield tell
    finally:
        _telling.reset(before)
        waiting.cancel()


def restart(bar: Any, n: int) -> None:
    """Count time from here, at n: what came before, to compile say, tells nothing of what is left."""
    bar.reset()
    bar.initial = bar.n = bar.last_print_n = n
