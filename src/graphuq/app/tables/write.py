"""Columns in; CSV that no spreadsheet takes for formulas out."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

# A spreadsheet runs a cell of text that begins with one of these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(file: TextIO, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of one length; numbers with 6 significant digits."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> str:
    """Text that could be a formula gets an apostrophe before it; a number is a number."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) and not _is_number(value) else value
    if isinstance(value, int):
        return str(value)
    told = f"{value:.6g}"
    return f"{value:.12f}" if told == "1" and value < 1 else told  # what is nearly certain is not told as certain


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
