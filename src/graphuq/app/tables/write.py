"""Columns in; CSV that no spreadsheet takes for formulas out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

# A spreadsheet runs a cell of text that begins with one of these, also in their wide form, whatever it does not show first.
_FORMULA = "=+-@＝＋－＠"
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories of Unicode: controls, formats, spaces
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(file: TextIO, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of one length; numbers with 6 significant digits."""
    for row in (columns, *zip(*columns.values(), strict=True)):
        file.write(",".join(_quoted(_cell(value)) for value in row) + "\n")


def _quoted(cell: str) -> str:
    """csv.writer would leave a carriage return bare, and what follows it would begin a line."""
    return '"' + cell.replace('"', '""') + '"' if any(letter in cell for letter in ',"\r\n') else cell


def _cell(value: Any) -> str:
    """Text that could be a formula gets an apostrophe before it; a number is a number."""
    if isinstance(value, str):
        return f"'{value}" if _is_formula(value) and not _NUMBER.fullmatch(value) else value
    if isinstance(value, int):
        return str(value)
    told = f"{value:.6g}"
    return f"{value:.12f}" if told == "1" and value < 1 else told  # what is nearly certain is not told as certain


def _is_formula(text: str) -> bool:
    first = next((k for k, letter in enumerate(text) if unicodedata.category(letter) not in _UNSEEN), len(text))
    return text[first : first + 1] in _FORMULA if first < len(text) else text[:1] in ("\t", "\r", "\n")
