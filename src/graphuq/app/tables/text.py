"""The bytes of a text file in; its cells, and what was guessed of how they are written, out."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import why
from graphuq.memory import check_room

PACKED = ".gz"
PIECE = 2**24  # bytes unpacked at a time
TAKES = 10  # bytes of memory, at least, for a byte of text: decoded, in cells and in numbers
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
OTHERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a"})
N_LOOKED_AT = 50  # lines that tell the separator

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234 may be meant as well
_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


class Marks(NamedTuple):
    """What stands between cells, in numbers and first of all: answers written alike open where a table does."""

    separator: str = ","
    decimal: str = "."
    first: str = ""  # the mark of UTF-8, without which Excel takes a file for Windows-1252
    points: tuple[tuple[str, bool], ...] = ()  # columns with points in numbers, and whether these part thousands


USUAL = Marks()
MARK = "\ufeff"


def read_text(
    path: Path, separator: str | None, like: Marks | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, list[str]], list[str], Marks]:
    """Columns, their cells as they stand in the file, notes on what it does not say itself, and its marks.

    `like` are those of a table that this one is written like, if there is one.
    """
    if separator is not None and len(separator) != 1:
        raise ValueError(f"The separator must be one character, got {separator!r}.")
    text, notes, mark = _decoded(path)
    usual = SEPARATORS[ending(path)]
    if told := re.match(r"sep=(.)\r?\n", text):  # Excel's own line
        separator, text = separator or told[1], text[told.end() :]
    chosen = separator or _separator(text, usual)
    if separator is None and chosen != usual:
        notes.append(f"The cells of {path.name} are taken to stand between {OTHERS[chosen]}.")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=chosen, strict=True)
    try:
        names = [name.strip() for name in next(filter(None, lines), [])]  # after blank lines
        rows = []
        for row in lines:
            if not row:  # a blank line
                continue
            if len(row) != len(names):
                raise ValueError(
                    f"{path.name} is ragged: line {lines.line_num} has {len(row)} cells between {OTHERS.get(chosen, chosen)}, "
                    f"and the heading has {len(names)}."
                )
            rows.append([cell.strip() for cell in row])
    except csv.Error as error:
        raise ValueError(f"{path.name} is not well-formed: line {lines.line_num}: {error}.") from None
    cells, nameless = by_column(path, names, rows)
    columns, more = columns_of(cells, commas=chosen == ";", like=like)
    marks = _marks(columns, cells, chosen, usual)._replace(first=mark)
    return columns, cells, [*notes, *nameless, *more], marks


def _marks(columns: dict[str, NDArray[Any]], cells: dict[str, list[str]], separator: str, usual: str) -> Marks:
    """Those of a CSV file; semicolons alone tell of decimal commas too, and tabs are not looked for in a CSV file."""
    numbers = [cell for name, column in columns.items() if column.dtype.kind == "f" for cell in cells[name]]
    comma = any("," in cell for cell in numbers) or (separator == ";" and not any("." in cell for cell in numbers))
    points = tuple(
        (name, (whole := _with_points(cells[name])) is not None and np.array_equal(column, whole, equal_nan=True))
        for name, column in columns.items()
        if column.dtype.kind == "f" and any("." in cell for cell in cells[name])
    )
    return Marks(separator if usual == "," else ";" if comma else ",", "," if comma else ".", points=points)


def by_column(path: Path, names: list[str], rows: list[list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """The cells of each column, without empty ones at the end, as after a separator that closes every line.

    Columns without a name, such as the index that pandas writes, are named by their place, with a note on each.
    """
    while names and not names[-1] and not any(row[len(names) - 1] for row in rows):
        names.pop()
    notes = []
    for k, name in enumerate(names):
        if not name:
            names[k] = f"column {k + 1}"
            notes.append(f"Column {k + 1} of {path.name} has no name, and is called {names[k]!r}.")
    check_names(path, names)
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}, notes


def check_names(path: Path, names: Sequence[str]) -> None:
    """Every column has a name of its own."""
    repeated = [name for k, name in enumerate(names) if name in names[:k]]
    if repeated and repeated[0]:
        raise ValueError(f"{path.name} has more than one column {repeated[0]!r}: give each its own name.")
    if "" in names:
        raise ValueError(f"Column {names.index('') + 1} of {path.name} has no name.")


def ending(path: Path) -> str:
    """How a name ends; of a file packed by gzip, how it would end unpacked."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() if last == PACKED else last


def _bytes(path: Path) -> bytes:
    """What a file holds, unpacked, if there is memory for it: that is known piece by piece, as a file may lie."""
    content = io.BytesIO()
    try:
        with gzip.open(path) if path.suffix.lower() == PACKED else path.open("rb") as stream:
            while piece := stream.read(PIECE):
                content.write(piece)
                check_room(TAKES * content.tell(), f"Reading {path.name}", "Divide it, or keep it as an NPZ file.")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} is not a gzip file, or is damaged: {why(error)}.") from None
    return content.getvalue()


def _decoded(path: Path) -> tuple[str, list[str], str]:
    """The text, notes, and the mark that answers of the same spreadsheet begin with."""
    content = _bytes(path)
    told = next((name for mark, name in _BOMS if content.startswith(mark)), None)
    if told is None and (nulls := content[:4000].count(0)) > len(content[:4000]) / 4:
        told = "utf-16-le" if content[1:4000:2].count(0) > nulls / 2 else "utf-16-be"
    try:
        text = content.decode(told or "utf-8")
    except UnicodeDecodeError as error:
        if told is not None:
            raise ValueError(f"{path.name} is not whole: it begins as {told} text and goes on as none.") from None
        bad = f"byte 0x{error.object[error.start]:02x} is not"
        try:
            text = content.decode("cp1252")
        except UnicodeDecodeError:
            raise ValueError(
                f"{path.name} is neither UTF-8 ({bad}) nor Windows-1252 text: save it as CSV in UTF-8."
            ) from None
        note = f"{path.name} is not UTF-8 ({bad}) and was read as Windows-1252: see if names look right."
        return text, [note], MARK
    if "\0" in text:
        raise ValueError(f"{path.name} is no text: it holds zero bytes. Save it as CSV in UTF-8.")
    return text, [], MARK if told else ""


def _separator(text: str, usual: str) -> str:
    """What gives lines one number of cells, two or more: the usual one if it does, else the one that gives most."""

    def n_cells(separator: str) -> int:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            counts = {len(row) for row, _ in zip(lines, range(N_LOOKED_AT), strict=False) if row}
        except csv.Error:
            return 0
        return counts.pop() if len(counts) == 1 else 0

    if n_cells(usual) > 1:
        return usual
    best = max(OTHERS, key=n_cells)
    return best if n_cells(best) > 1 else usual


def columns_of(
    cells: dict[str, list[str]], *, commas: bool = False, like: Marks | None = None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Each column as numbers where every cell that is not missing is one, else as text; and notes on commas and points.

    Args:
        cells: text by column.
        commas: whether 1,234 is 1.234 rather than unclear.
        like: how a table is written that this one is like.
    """
    columns = {name: _parse(column) for name, column in cells.items()}
    text = {name: column for name, column in columns.items() if column.dtype.kind == "O"}
    if not commas:
        commas = any(_with_commas(column, unclear=False) is not None for column in text.values())
    found = {name: each for name in text if (each := _with_commas(text[name], unclear=commas)) is not None}
    notes = []
    if found:
        example = next(cell for cell in text[next(iter(found))] if "," in cell)
        notes.append(f"Numbers such as {example!r} are taken to have a decimal comma.")
    pointed = {
        name: max(cells[name], key=lambda cell: cell.count("."), default="")
        for name in columns.keys() - found.keys()
    }
    whole = {
        name: each
        for name in cells
        if "." in pointed.get(name, "") and (each := _with_points(cells[name])) is not None
    }
    known = USUAL if like is None else like
    parted = bool(found) or known.decimal == "," or any(pointed[name].count(".") > 1 for name in whole)
    for name, numbers in whole.items():
        example = pointed[name]
        if dict(known.points).get(name, parted):
            found[name] = numbers
            notes.append(f"Points as in {example!r} in column {name!r} are taken to part thousands.")
        elif commas and name not in dict(known.points):
            notes.append(
                f"Column {name!r} holds numbers such as {example!r}, taken as {float(example):g}: if the point parts "
                "thousands, write them without it."
            )
    return columns | found, notes


def _with_commas(column: NDArray[Any], *, unclear: bool) -> NDArray[np.float64] | None:
    """Numbers with a decimal comma; None where a cell is none, or where all may be thousands and that is unclear."""
    cells = [cell for cell in column if "," in cell]
    if not cells or not all(map(_COMMA.fullmatch, cells)) or any("," not in c and "." in c for c in column):
        return None
    if not unclear and all(map(_THOUSANDS.fullmatch, cells)):
        return None
    found = _parse([cell.replace(".", "").replace(",", ".") for cell in column])
    return found if found.dtype.kind == "f" else None


def _with_points(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Whole numbers whose points part thousands; None where a cell can be no such number."""
    if not all(_POINTS.fullmatch(cell) for cell in cells if "." in cell):
        return None
    found = _parse([cell.replace(".", "") for cell in cells])
    return found if found.dtype.kind == "f" else None


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return cell.lower() in MISSING


def _parse(cells: list[str]) -> NDArray[Any]:
    present = ["" if is_missing(cell) else cell for cell in cells]
    try:
        return np.array([_number(cell) if cell else np.nan for cell in present], dtype=np.float64)
    except ValueError:
        return np.array(present, dtype=object)


def _number(cell: str) -> float:
    # 007 is a name and not 7, nor 005.113 a number, and a float has 15 digits; float() would read 1_000
    cell = cell.replace("\u2212", "-")  # as word processors write a minus
    if "_" in cell or re.fullmatch(r"[+-]?(0\d+(\.\d+)?|\d{16,})", cell):
        raise ValueError
    return float(cell)
