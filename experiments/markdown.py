"""Rows and sentences in; Markdown tables and paragraphs of a page out."""

from __future__ import annotations

import textwrap

WIDTH = 120


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, in which a number stays beside its error."""
    lines = (f"| {' | '.join(row)} |" for row in [heading, ["---"] * len(heading), *rows])
    return "\n".join(lines).replace(" ± ", "\u00a0±\u00a0") + "\n"


def wrapped(text: str) -> str:
    """A paragraph."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False) + "\n"


def with_error(value: list[float | None], digits: int = 3) -> str:
    """A mean with its standard error, if it has one."""
    mean, error = value
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
