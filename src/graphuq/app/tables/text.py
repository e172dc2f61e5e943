"""The bytes of a text file in; its cells, with notes on the format that was guessed, out."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import why
from graphuq.memory import check_room

PACKED = ".gz"
PIECE = 2**24  # bytes unpacked at a time
TAKES = 10  # bytes of memory per byte of text, at least: decoded, as cells and as numbers
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
OTHERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a"})
N_LOOKED_AT = 50  # lines from which the separator is guessed

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # ambiguous: 1,234 or 1.234
_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_WHOLE = re.compile(r"[-\u2212]?\d+([.,]0)?")  # 1.0 is how programs write a 1 in a column with gaps


class Marks(NamedTuple):
    """The format marks of a CSV file; predictions written with them open in the same programs as the table."""

    separator: str = ","
    decimal: str = "."
    first: str = ""  # byte order mark, without which Excel assumes Windows-1252
    points: Mapping[str, bool] = MappingProxyType({})  # columns with points, and whether these separate thousands


USUAL = Marks()
MARK = "\ufeff"


def read_text(
    path: Path, separator: str | None, like: Marks | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, list[str]], list[str], Marks]:
    """Read columns, their original cells, notes on what was guessed, and the format marks.

    `like` are the marks of a table in the same format, if known.
    """
    if separator is not None and len(separator) != 1:
        raise ValueError(f"The separator must be one character, got {separator!r}.")
    text, notes, mark = _decoded(path)
    usual = SEPARATORS[ending(path)]
    if declared := re.match(r"sep=(.)\r?\n", text):  # a line that Excel writes and reads
        separator, text = separator or declared[1], text[declared.end() :]
    chosen = separator or _separator(text, usual)
    if separator is None and chosen != usual:
        notes.append(f"The cells of {path.name} are taken to stand between {OTHERS[chosen]}.")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=chosen, strict=True)
    try:
        names = next(filter(None, lines), [])  # after blank lines
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
    cells, name_notes = by_column(path, names, rows)
    columns, number_notes = columns_of(cells, commas=chosen == ";", like=like)
    marks = _marks(columns, cells, chosen, usual)._replace(first=mark)
    return columns, cells, [*notes, *name_notes, *number_notes], marks


def _marks(columns: dict[str, NDArray[Any]], cells: dict[str, list[str]], separator: str, usual: str) -> Marks:
    """Marks for a CSV file: semicolons without decimal points suggest decimal commas; tabs are not used in CSV."""
    numbers = [cell for name, column in columns.items() if column.dtype.kind == "f" for cell in cells[name]]
    comma = any("," in cell for cell in numbers) or (separator == ";" and not any("." in cell for cell in numbers))
    points = {
        name: (whole := _with_points(cells[name])) is not None and np.array_equal(column, whole, equal_nan=True)
        for name, column in columns.items()
        if column.dtype.kind == "f" and any("." in cell for cell in cells[name])
    }
    return Marks(separator if usual == "," else ";" if comma else ",", "," if comma else ".", points=points)


def by_column(path: Path, names: list[str], rows: list[list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """The cells of each column, without empty last columns, as after a trailing separator on every line.

    Columns without a name, such as the index that pandas writes, are named by their position, with a note on each.
    """
    names = [on_one_line(name) for name in names]
    while names and not names[-1] and not any(row[len(names) - 1] for row in rows):
        names.pop()
    notes = []
    for k, name in enumerate(names):
        if not name:
            names[k] = f"column {k + 1}"
            notes.append(f"Column {k + 1} of {path.name} has no name, and is called {names[k]!r}.")
    check_names(path, names)
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}, notes


def on_one_line(name: str) -> str:
    """A column name in which line breaks, such as those that fit it into its column, are spaces."""
    return " ".join(name.split())


def check_names(path: Path, names: Sequence[str]) -> None:
    """Raise an error unless every column has a unique name."""
    repeated = [name for k, name in enumerate(names) if name in names[:k]]
    if repeated and repeated[0]:
        raise ValueError(f"{path.name} has more than one column {repeated[0]!r}: give each its own name.")
    if "" in names:
        raise ValueError(f"Column {names.index('') + 1} of {path.name} has no name.")


def ending(path: Path) -> str:
    """The suffix of a file name, ignoring a final .gz."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() if last == PACKED else last


def _bytes(path: Path) -> bytes:
    """The unpacked bytes of a file; memory is checked chunk by chunk, because a declared size may be wrong."""
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
    """The text, notes, and the byte order mark that predictions for the same program should begin with."""
    content = _bytes(path)
    codec = next((name for mark, name in _BOMS if content.startswith(mark)), None)
    if codec is None and (nulls := content[:4000].count(0)) > len(content[:4000]) / 4:
        codec = "utf-16-le" if content[1:4000:2].count(0) > nulls / 2 else "utf-16-be"
    try:
        text = content.decode(codec or "utf-8")
    except UnicodeDecodeError as error:
        if codec is not None:
            raise ValueError(
                f"{path.name} is not whole: it begins as {codec} text but does not go on so."
            ) from None
        bad = f"byte 0x{error.object[error.start]:02x} is not"
        try:
            text = content.decode("cp1252")
        except UnicodeDecodeError:
            raise ValueError(
                f"{path.name} is neither UTF-8 ({bad}) nor Windows-1252 text: save it as CSV in UTF-8."
            ) from None
        note = f"{path.name} is not UTF-8 ({bad}) and was read as Windows-1252: check that names look right."
        return text, [note], MARK
    if "\0" in text:
        raise ValueError(f"{path.name} is not text: it holds zero bytes. Save it as CSV in UTF-8.")
    return text, [], MARK if codec else ""


def _separator(text: str, usual: str) -> str:
    """Guess the separator: it gives all lines the same number of cells, two or more; prefer the usual one.

    If none does, a line is ragged, and the separator is the one that gives the heading the most cells.
    """

    def n_cells(separator: str, n_lines: int = N_LOOKED_AT) -> int:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            counts = {len(row) for row, _ in zip(filter(None, lines), range(n_lines), strict=False)}
        except csv.Error:
            return 0
        return counts.pop() if len(counts) == 1 else 0

    candidates = (usual, *OTHERS)  # the first of equals wins
    if n_cells(usual) > 1:
        return usual
    best = max(candidates, key=n_cells)
    return best if n_cells(best) > 1 else max(candidates, key=lambda separator: n_cells(separator, n_lines=1))


def columns_of(
    cells: dict[str, list[str]], *, commas: bool = False, like: Marks | None = None
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Parse each column as numbers if all its nonmissing cells are numbers, else as text; add notes on marks.

    Args:
        cells: text by column.
        commas: whether 1,234 means 1.234 rather than being ambiguous.
        like: marks of a table in the same format, if known.
    """
    columns = {name: _parse(column) for name, column in cells.items()}
    text = {name: column for name, column in columns.items() if column.dtype.kind == "O"}
    if not commas:
        commas = any(_with_commas(column, unclear=False) is not None for column in text.values())
    changed = {name: parsed for name in text if (parsed := _with_commas(text[name], unclear=commas)) is not None}
    notes = []
    if changed:
        example = next(cell for cell in text[next(iter(changed))] if "," in cell)
        notes.append(f"Numbers such as {example!r} are taken to have a decimal comma.")
    pointed = {
        name: max(cells[name], key=lambda cell: cell.count("."), default="")
        for name in columns.keys() - changed.keys()
    }
    whole = {
        name: parsed
        for name in cells
        if "." in pointed.get(name, "") and (parsed := _with_points(cells[name])) is not None
    }
    marks = USUAL if like is None else like
    thousands = bool(changed) or marks.decimal == "," or any(pointed[name].count(".") > 1 for name in whole)
    for name, numbers in whole.items():
        example = pointed[name]
        if marks.points.get(name, thousands):
            changed[name] = numbers
            notes.append(f"Points as in {example!r} in column {name!r} are taken to separate thousands.")
        elif commas and name not in marks.points:
            notes.append(
                f"Column {name!r} holds numbers such as {example!r}, taken as {float(example):g}: if the point separates "
                "thousands, write them without it."
            )
    return columns | changed, notes


def _with_commas(column: NDArray[Any], *, unclear: bool) -> NDArray[np.float64] | None:
    """Parse numbers with decimal commas; None if one is not, or if all may be thousands and not `unclear`."""
    cells = [cell for cell in column if "," in cell]
    if not cells or not all(map(COMMA.fullmatch, cells)) or any("," not in c and "." in c for c in column):
        return None
    if not unclear and all(map(_THOUSANDS.fullmatch, cells)):
        return None
    numbers = _parse([cell.replace(".", "").replace(",", ".") for cell in column])
    return numbers if numbers.dtype.kind == "f" else None


def _with_points(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Parse integers whose points separate thousands; None if a cell is not such a number."""
    if not all(_POINTS.fullmatch(cell) for cell in cells if "." in cell):
        return None
    numbers = _parse([cell.replace(".", "") for cell in cells])
    return numbers if numbers.dtype.kind == "f" else None


def named(cells: Sequence[str], numbers: NDArray[np.float64]) -> tuple[NDArray[Any], str | None]:
    """Numbers that name classes, categories or rows: as text, so that 3.1 and 3.10 stay apart, unless all are whole.

    For whole numbers, also returns a cell such as 1.0 if there is a 1: the two are taken as the same. -1 marks
    unlabeled rows however it is written.
    """
    if all(_WHOLE.fullmatch(cell) or is_missing(cell) for cell in cells):
        present = {*cells}
        return numbers, next((cell for cell in cells if cell[-2:] in (".0", ",0") and cell[:-2] in present), None)
    text = np.array(["" if is_missing(cell) else cell for cell in cells], dtype=object)
    return np.where(numbers == -1, "-1", text), None


def spelled(cell: str, names: Container[str]) -> str:
    """A whole number as one of the names: 1.0 as 1, or 1 as 1.0, if only the other is among them."""
    other = cell.removesuffix(".0") if cell.endswith(".0") else f"{cell}.0"
    return other if cell not in names and _WHOLE.fullmatch(cell) and other in names else cell


def is_missing(cell: str) -> bool:
    """Whether a cell stands for a missing value."""
    return cell.lower() in MISSING


def _parse(cells: list[str]) -> NDArray[Any]:
    present = ["" if is_missing(cell) else cell for cell in cells]
    try:
        return np.array([number(cell) if cell else np.nan for cell in present], dtype=np.float64)
    except ValueError:
        return np.array(present, dtype=object)


def number(cell: str) -> float:
    """Parse a cell; ValueError if it is not a number."""
    # 007 and 005.113 are names, not numbers; floats have 15 digits; float() would accept 1_000
    cell = cell.replace("\u2212", "-")  # the minus sign of word processors
    if "_" in cell or re.fullmatch(r"[+-]?(0\d+(\.\d+)?|\d{16,})", cell):
        raise ValueError
    return float(cell)
