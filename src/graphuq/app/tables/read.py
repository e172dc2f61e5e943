"""A CSV, TSV, Excel, Parquet or NPZ file in; named columns, or a one-sentence error, out.

No cell is ever executed: NPZ files with pickled objects raise an error, and formulas and HTML are plain text.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import archive
from graphuq._expect import expect_whole_letters
from graphuq._needed import needed
from graphuq.app.tables.text import (
    MARK,
    SEPARATORS,
    USUAL,
    Marks,
    by_column,
    check_names,
    columns_of,
    ending,
    is_missing,
    named,
    on_one_line,
    read_text,
)
from graphuq.classes import names_listed

EXCEL = (".xlsx", ".xlsm")
EXACT = 2**53  # float64 represents all integers up to here
CLOSE = 0.75  # difflib similarity of names suggested for each other; at its default 0.6 "kind" is close to "id"

# The columns of a file; the cells of those read as text, and of Parquet booleans; and notes on what had to be guessed.
Content = tuple[dict[str, NDArray[Any]], dict[str, list[str]], list[str]]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes:
        source: the file, for messages.
        columns: numbers are float64 with NaN for missing cells; text, and integers with more digits than float64
            can represent, are arrays of str objects with "" for missing cells. In an NPZ file a column may hold
            several numbers per row, or a picture.
        missing_words: for each column read as text, the words such as "NA" that count as missing, with the number
            of rows of each; empty cells are not counted.
        notes: what had to be guessed about the format of the file.
        row_names: names of the rows; by default numbers from 1.
        marks: format marks for a CSV file that opens in the same programs as this table.
    """

    source: Path
    columns: Mapping[str, NDArray[Any]]
    missing_words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    row_names: Sequence[str] = ()
    marks: Marks = USUAL

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> NDArray[Any]:
        """One column; raise an error that suggests a similar name if there is none."""
        self.expect(name)
        return self.columns[name]

    def expect(self, *names: str) -> None:
        """Raise an error if columns are missing; for a single one, suggest the closest name that is not asked for too."""
        missing = [name for name in names if name not in self.columns]
        if not missing:
            return
        others = {other.casefold(): other for other in self.columns if other not in names}
        near = get_close_matches(missing[0].casefold(), others, n=1, cutoff=CLOSE)
        told = f"{self.source.name} has no column{'s' * (len(missing) > 1)} {names_listed(missing)}"
        if near and len(missing) == 1:
            raise ValueError(f"{told}: did you mean {others[near[0]]!r}?")
        # the format may have been guessed wrong
        raise ValueError(" ".join([f"{told}: there are {names_listed(list(self.columns))}.", *self.notes]))

    def called(self, row: int) -> str:
        """The name of a row."""
        return self.row_names[row] if self.row_names else str(row + 1)

    def text(self, name: str) -> NDArray[Any]:
        """One column as text: integers without a decimal point, "" for missing cells."""
        column = self.column(name)
        if column.ndim != 1:
            raise ValueError(f"{name!r} holds {column.shape[1:]} numbers a row, where one value is needed.")
        if column.dtype.kind == "f":
            return np.array([_digits(value) for value in column], dtype=object)
        return column

    def as_written(self, name: str) -> NDArray[Any]:
        """One column as text for display, with the decimal mark of the file."""
        if self.column(name).dtype.kind != "f":
            return self.text(name)
        return np.array([cell.replace(".", self.marks.decimal) for cell in self.text(name)], dtype=object)


def _digits(value: float) -> str:
    if np.isnan(value):
        return ""
    return f"{value:.0f}" if value == np.trunc(value) and abs(value) <= EXACT else f"{value:.15g}"


def read_table(
    path: Path,
    *,
    separator: str | None = None,
    sheet: str | None = None,
    like: Marks | None = None,
    as_text: Collection[str | None] = (),
) -> Table:
    """Read a file in the format of its suffix; of an Excel file one sheet, by default the first.

    `like` are the marks of a table in the same format, if known. `as_text` names the columns of classes, categories
    or ids, which stay as they are written.
    """
    kind = ending(path)
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file.")
    if kind == ".xls":
        raise ValueError(f"{path.name} is an old Excel file: save it as .xlsx or CSV.")
    if kind in _READERS and kind != path.suffix.lower():
        raise ValueError(f"{path.name} is compressed, which only text files may be: gunzip -k {quote(str(path))}.")
    if kind not in (*SEPARATORS, *_READERS):
        raise ValueError(f"{path.name} is none of the files that can be read: CSV, TSV, Excel, Parquet and NPZ.")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file: save what it gives, and name that.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty.")
    if separator is not None and kind in _READERS:
        raise ValueError(f"A separator is for text files such as CSV, and {path.name} is none: leave it out.")
    if sheet is not None and kind not in EXCEL:
        raise ValueError(f"A sheet is one of an Excel file, and {path.name} is none: leave it out.")
    if kind in EXCEL:
        columns, cells, notes, marks = *_read_excel(path, sheet), Marks(first=MARK)
    else:
        columns, cells, notes, marks = (
            (*_READERS[kind](path), USUAL) if kind in _READERS else read_text(path, separator, like)
        )
    if not columns or len(next(iter(columns.values()))) == 0:
        raise ValueError(" ".join([f"{path.name} has no rows.", *notes]))
    if kind not in _READERS or kind in EXCEL:
        columns, cells, n_empty = _without_empty_end(columns, cells)
        if n_empty:
            what = f"The last {n_empty:,} rows hold" if n_empty > 1 else "The last row holds"
            notes.append(f"{what} nothing: left out.")
    for name in (name for name in cells if name in as_text and columns[name].dtype.kind == "f"):
        columns[name], merged = named(cells[name], columns[name])
        if merged is not None:
            notes.append(f"Column {name!r} holds {merged[:-2]!r} and {merged!r}, which are taken as the same.")
    words = {name: Counter(cell for cell in column if cell and is_missing(cell)) for name, column in cells.items()}
    return Table(path, columns, words, notes, marks=marks)


def _without_empty_end(columns: Any, cells: Any) -> tuple[Any, Any, int]:
    """The columns and their cells without empty rows at the end, and how many these were; the first row is kept."""
    total = n_rows = len(next(iter(columns.values())))
    while n_rows > 1 and not any(column[n_rows - 1] for column in cells.values()):
        n_rows -= 1
    if n_rows < total:
        columns, cells = ({name: each[:n_rows] for name, each in part.items()} for part in (columns, cells))
    return columns, cells, total - n_rows


def _read_npz(path: Path) -> Content:
    try:
        with archive.told_if_damaged(path, f"{path.name} is not an NPZ file, or is damaged"):
            arrays = archive.read_npz(path)
    except archive.Pickled as error:
        raise ValueError(f"{path.name} holds {error}: save numbers or text instead.") from None
    check_names(path, list(arrays))
    for name, array in arrays.items():
        if array.ndim == 0:
            raise ValueError(f"{name!r} of {path.name} is a single value: each row needs one of its own.")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ValueError(f"The arrays of {path.name} differ in length: {listed}. Each needs one entry a row.")
    texts = {name: array for name, array in arrays.items() if array.dtype.kind == "U" and array.ndim == 1}
    cells = {name: [str(cell).strip() for cell in array] for name, array in texts.items()}
    for name, column in cells.items():
        expect_whole_letters(column, f"{name!r} of {path.name}")
    text, notes = columns_of(cells)
    columns = {name: text[name] if name in cells else _plain(path, name, arrays[name]) for name in arrays}
    return columns, cells, notes


def _plain(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "iu" and array.ndim == 1:
        return _whole_numbers(array.tolist())
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "U":
        raise ValueError(f"{name!r} of {path.name} must hold one text a row, got the shape {array.shape}.")
    raise ValueError(f"{name!r} of {path.name} holds {array.dtype}, neither numbers nor text.")


def _whole_numbers(values: list[int | None]) -> NDArray[Any]:
    """Integers as float64, or as text if float64 cannot represent one of them."""
    if any(value is not None and abs(value) > EXACT for value in values):
        return np.array(["" if value is None else str(value) for value in values], dtype=object)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _read_parquet(path: Path) -> Content:
    parquet = needed("pyarrow.parquet", "Parquet files need pyarrow", "parquet")
    import pyarrow

    with archive.told_if_damaged(path, f"{path.name} is not a Parquet file, or is damaged"):
        table = parquet.ParquetFile(path).read()
        contents = [column.to_pylist() for column in table.columns]
    names = [on_one_line(name) for name in table.column_names]
    check_names(path, names)
    columns: dict[str, NDArray[Any]] = {}
    flags: dict[str, list[str]] = {}  # numbers as features, and words where they name classes
    for name, column, values in zip(names, table.columns, contents, strict=True):
        kind = column.type
        if pyarrow.types.is_integer(kind):
            columns[name] = _whole_numbers(values)
        elif pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind):
            columns[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
            if pyarrow.types.is_boolean(kind):
                flags[name] = ["" if value is None else str(value) for value in values]
        else:
            try:  # some programs write text as bytes
                values = [value.decode() if isinstance(value, bytes) else value for value in values]
            except UnicodeDecodeError:
                raise ValueError(f"Column {name!r} of {path.name} holds bytes that are not UTF-8 text.") from None
            columns[name] = np.array(["" if value is None else str(value) for value in values], dtype=object)
    return columns, flags, []


def _read_excel(path: Path, sheet: str | None = None) -> Content:
    """Read one sheet, by default the first, whose first line holds the names."""
    openpyxl = needed("openpyxl", "Excel files need openpyxl", "excel")
    message = f"{path.name} is not an Excel file, is locked by a password, or is damaged"
    with archive.told_if_damaged(path, message), path.open("rb") as stream:
        archive.check_members(zipfile.ZipFile(stream))
        book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
        sheets = [worksheet.title for worksheet in book.worksheets]
        chosen = sheets[0] if sheets and sheet is None else sheet
        lines = _lines(book[chosen]) if chosen in sheets else []
        n_empty = 0
        if any(None in line for line in lines):
            formulas = openpyxl.load_workbook(stream, read_only=True)
            n_empty = sum(
                value is None and formula is not None
                for values, line in zip(lines, _lines(formulas[chosen]), strict=True)
                for value, formula in zip(values, line, strict=True)
            )
    if not sheets:
        raise ValueError(f"{path.name} has no sheet with rows.")
    if chosen not in sheets:
        raise ValueError(f"{path.name} has no sheet {chosen!r}: there are {names_listed(sheets)}.")
    lines = [[_cell(value) for value in line] for line in lines if any(value is not None for value in line)]
    longest = max(map(len, lines), default=0)
    lines = [line + [""] * (longest - len(line)) for line in lines]
    cells, notes = by_column(path, lines[0] if lines else [], lines[1:])
    columns, number_notes = columns_of(cells)
    if n_empty:
        notes.append(
            f"Formulas of {path.name} that have no value are read as empty cells ({n_empty}): if they should have one, open the "
            "file in a spreadsheet program and save it."
        )
    if len(sheets) > 1 and sheet is None:
        notes.append(
            f"{path.name} has {len(sheets)} sheets, and the first, {chosen!r}, was read: --sheet names another."
        )
    return columns, cells, notes + number_notes


def _lines(sheet: Any) -> list[list[Any]]:
    """All cells of a sheet, whose declared size may be too small and whose lines may differ in length."""
    sheet.reset_dimensions()
    return [list(line) for line in sheet.values]


def _cell(value: Any) -> str:
    """Format a spreadsheet cell as text."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return f"{value:.0f}"
    return str(value).strip()


def refuse_other_kind(out: Path | None) -> None:
    """Raise an error for a file to be written as CSV whose name says that it is something else."""
    if out is not None and out.suffix.lower() in _READERS:
        raise ValueError(f"{out} would hold CSV, which its name contradicts: give a name that ends in .csv.")


_READERS: dict[str, Callable[[Path], Content]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    **dict.fromkeys(EXCEL, _read_excel),
}
