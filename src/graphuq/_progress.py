"""Whether to show how far things are in; a progress bar, or one that shows nothing, out: tqdm is imported where shown."""

from __future__ import annotations

from typing import Any


class _Silent:
    """A bar that nobody sees."""

    def __init__(self, total: int) -> None:
        self.n, self.total = 0, total

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing to take off the screen."""

    def update(self, n: int = 1) -> None:
        """So much further."""
        self.n += n

    def set_description(self, text: str) -> None:
        """Nothing to say."""

    def set_postfix(self, values: Any) -> None:
        """Nothing to say."""


def progress_bar(total: int, *, shown: bool, unit: str, desc: str | None = None, steady: bool = True) -> Any:
    """A bar of so many units, on standard error; what is left is told where they take steps of one length."""
    if not shown:
        return _Silent(total)
    from tqdm.auto import tqdm

    told = None if steady else f"{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} {unit}s, {{elapsed}}"
    return tqdm(total=total, unit=unit, desc=desc, bar_format=told)


def restart(bar: Any, n: int) -> None:
    """Count time from here, at n: what came before, to compile say, tells nothing of what is left."""
    bar.reset()
    bar.initial = bar.n = bar.last_print_n = n
