"""Columns in; CSV safe from formula injection in spreadsheets out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Any, TextIO

from graphuq.app.tables.text import USUAL, Marks

# A spreadsheet runs text that begins with one of these, also full-width, possibly after invisible characters.
_FORMULA = "=+-@＝＋－＠"
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")  # Unicode categories: controls, formats, spaces
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(file: TextIO, columns: Mapping[str, Sequence[Any]], marks: Marks = USUAL) -> None:
    """Write columns of equal length; numbers have 6 significant digits."""
    file.write(marks.first)
    for row in (columns, *zip(*columns.values(), strict=True)):
        file.write(marks.separator.join(_quoted(_cell(value, marks), marks) for value in row) + "\n")


def beside(own: Mapping[str, Sequence[Any]], ours: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The user's columns, then ours; one of ours whose name is taken gets the suffix " (graphuq)"."""
    merged = dict(own)
    for name, column in ours.items():
        merged[name if name not in own else called_ours(name, {*merged, *ours})] = column
    return merged


def called_ours(name: str, taken: Container[str]) -> str:
    """Append " (graphuq)" until the name is not taken."""
    while name in taken:
        name += " (graphuq)"
    return name


def guarded(text: str) -> str:
    """Prefix possible formulas, and guarded text again, with an apostrophe, so that the mapping is one-to-one."""
    bare = text.lstrip("'")
    return f"'{text}" if _is_formula(bare) and not _NUMBER.fullmatch(bare) else text


def unguarded(cell: str) -> str:
    """Invert `guarded`."""
    return cell[1:] if cell.startswith("'") and guarded(cell[1:]) == cell else cell


def _quoted(cell: str, marks: Marks) -> str:
    """Quote a cell; unlike csv.writer, also one with a bare carriage return, which would begin a new line."""
    special = any(letter in cell for letter in (marks.separator, *'"\r\n'))
    return '"' + cell.replace('"', '""') + '"' if special else cell


def _cell(value: Any, marks: Marks) -> str:
    """Format a value: text guarded against formulas, numbers with the decimal mark of the table."""
    if isinstance(value, str):
        return guarded(value)
    if isinstance(value, int):
        return str(value)
    text = f"{value:.6g}"
    if text == "1" and value < 1:  # near-certainty must not be written as certainty
        text = f"{value:.12f}"
    return text.replace(".", marks.decimal)


def _is_formula(text: str) -> bool:
    first = next((k for k, letter in enumerate(text) if unicodedata.category(letter) not in _UNSEEN), len(text))
    return text[first : first + 1] in _FORMULA if first < len(text) else text[:1] in ("\t", "\r", "\n")
