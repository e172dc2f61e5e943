"""Columns in; CSV that no spreadsheet takes for formulas out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Any, TextIO

from graphuq.app.tables.text import USUAL, Marks

# A spreadsheet runs a cell of text that begins with one of these, also in their wide form, whatever it does not show first.
_FORMULA = "=+-@＝＋－＠"
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")  # categories of Unicode: controls, formats, spaces
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(file: TextIO, columns: Mapping[str, Sequence[Any]], marks: Marks = USUAL) -> None:
    """Write columns of one length; numbers with 6 significant digits."""
    file.write(marks.first)
    for row in (columns, *zip(*columns.values(), strict=True)):
        file.write(marks.separator.join(_quoted(_cell(value, marks), marks) for value in row) + "\n")


def beside(own: Mapping[str, Sequence[Any]], ours: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Columns under a user's own names, then ours; one of ours that is called as one of those says whose it is."""
    found = dict(own)
    for name, column in ours.items():
        found[name if name not in own else called_ours(name, {*found, *ours})] = column
    return found


def called_ours(name: str, taken: Container[str]) -> str:
    """A name that says whose it is, unlike all that are taken."""
    while name in taken:
        name += " (graphuq)"
    return name


def guarded(text: str) -> str:
    """With an apostrophe before what could be a formula, or is guarded already: no two texts become one."""
    bare = text.lstrip("'")
    return f"'{text}" if _is_formula(bare) and not _NUMBER.fullmatch(bare) else text


def unguarded(cell: str) -> str:
    """The text that `guarded` was given."""
    return cell[1:] if cell.startswith("'") and guarded(cell[1:]) == cell else cell


def _quoted(cell: str, marks: Marks) -> str:
    """csv.writer would leave a carriage return bare, and what follows it would begin a line."""
    special = any(letter in cell for letter in (marks.separator, *'"\r\n'))
    return '"' + cell.replace('"', '""') + '"' if special else cell


def _cell(value: Any, marks: Marks) -> str:
    """Text that could be a formula is guarded; a number is a number."""
    if isinstance(value, str):
        return guarded(value)
    if isinstance(value, int):
        return str(value)
    told = f"{value:.6g}"
    if told == "1" and value < 1:  # what is nearly certain is not told as certain
        told = f"{value:.12f}"
    return told.replace(".", marks.decimal)


def _is_formula(text: str) -> bool:
    first = next((k for k, letter in enumerate(text) if unicodedata.category(letter) not in _UNSEEN), len(text))
    return text[first : first + 1] in _FORMULA if first < len(text) else text[:1] in ("\t", "\r", "\n")
